"""Unsqueeze: the axes, an input since opset 13, become an attribute."""

from typing import Any

import numpy as np

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.dynamic_shapes import axis_mask, reshape_exactly
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("Unsqueeze", version=13)
def axes_attribute(site: Site) -> None:
    """The axes become an attribute."""
    data, axes = site.input(0), site.input(1)
    values = known(axes)
    if values is None:
        site.replace(_by_reshaping(site))
        return
    chosen = [int(axis) for axis in values.reshape(-1)]
    if any(axis < 0 for axis in chosen) and data is not None and data.shape is not None:
        chosen = normalized(chosen, len(data.shape) + len(chosen))
    site.set_inputs(data)
    site.set(axes=chosen)


def _by_reshaping(site: Site) -> Any:
    """Reshape the input to a shape that is computed at run time, with ones between the input's sizes."""
    op, data, axes = site.op, site.input(0), site.input(1)
    if axes is None or axes.shape is None or not isinstance(axes.shape[0], int):
        raise CannotExpress("neither its axes nor their number are known, and so the rank of its result")
    rank = site.rank(data, "neither are its axes") + axes.shape[0]
    kept = op.Not(axis_mask(op, axes, rank))
    places = op.Transpose(op.NonZero(kept), perm=[1, 0])
    ones = op.constant(np.ones(rank, dtype=np.int64))
    return reshape_exactly(op, data, op.ScatterND(ones, places, op.Shape(data)))
