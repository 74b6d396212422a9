"""GatherND: batch dimensions since opset 12."""

from typing import Any

import numpy as np

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("GatherND", version=12)
def batch_as_an_index(site: Site) -> None:
    """The position in the batch becomes the first part of each index."""
    batch = site.attribute("batch_dims")
    site.set(batch_dims=None)
    if not batch:
        return
    data, indices, op = site.input(0), site.input(1), site.op
    rank = site.rank(indices, "neither is where its batch ends")
    site.rank(data, "neither is where its batch ends")
    depth = indices.shape[-1] if indices is not None and indices.shape is not None else None

    def part(value: Any, start: int, end: int) -> Any:
        return op.Slice(op.Shape(value), op.constant(np.array([start])), op.constant(np.array([end])))

    every = op.constant(np.array([-1]))
    count = op.make("ReduceProd", part(data, 0, batch), axes=[0], keepdims=1)
    flat_data = op.Reshape(data, op.Concat(count, part(data, batch, np.iinfo(np.int64).max), axis=0))
    flat = op.Reshape(indices, op.Concat(count, every, part(indices, rank - 1, rank), axis=0))
    scalar = op.Squeeze(count, axes=[0])
    numbers = op.Range(op.constant(np.array(0)), scalar, op.constant(np.array(1)))
    column = op.Reshape(numbers, op.constant(np.array([-1, 1, 1])))
    rows = op.Slice(op.Shape(flat), op.constant(np.array([0])), op.constant(np.array([2])))
    places = op.Expand(column, op.Concat(rows, op.constant(np.array([1])), axis=0))
    found = op.GatherND(flat_data, op.Concat(places, flat, axis=2))
    ends = batch + depth if isinstance(depth, int) else None
    tail = part(found, 2, np.iinfo(np.int64).max) if ends is None else part(data, ends, np.iinfo(np.int64).max)
    site.replace(op.Reshape(found, op.Concat(part(indices, 0, rank - 1), tail, axis=0)))
