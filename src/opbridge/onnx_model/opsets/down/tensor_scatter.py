"""TensorScatter: new in opset 24."""

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("TensorScatter", version=24)
def scattered(site: Site) -> None:
    """The node becomes a ScatterElements along the axis of the sequence."""
    cache, update, begin, op = site.input(0), site.input(1), site.input(2), site.op
    rank = site.rank(cache, "neither is its axis")
    (axis,) = normalized([site.attribute("axis")], rank)

    def size(value: Any) -> Any:
        return op.Gather(op.Shape(value), op.constant(np.array(axis)), axis=0)

    shape = op.constant(np.array([-1 if place == axis else 1 for place in range(rank)]))
    places = op.Reshape(op.Range(op.constant(np.array(0)), size(update), op.constant(np.array(1))), shape)
    if begin is not None:
        batch = op.constant(np.array([-1, *[1] * (rank - 1)]))
        places = op.Add(places, op.Reshape(op.cast(begin, ir.DataType.INT64), batch))
    if site.attribute("mode") == "circular":
        places = op.Mod(places, size(cache))
    site.replace(op.ScatterElements(cache, op.Expand(places, op.Shape(update)), update, axis=axis))
