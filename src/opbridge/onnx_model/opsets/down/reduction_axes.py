"""Reductions: the axes, an input since opset 13 or 18, become an attribute."""

from typing import Any

import numpy as np

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.reductions import reduce_over
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("ReduceSum", version=13)
@down(
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
    version=18,
)
def axes_attribute(site: Site) -> None:
    """The axes become an attribute."""
    data, axes = site.input(0), site.input(1)
    noop = bool(site.attribute("noop_with_empty_axes"))
    values = None if axes is None else known(axes)
    if axes is not None and values is None and axes.shape is not None and axes.shape[0] == 0:
        values = np.zeros(0, dtype=np.int64)
    if axes is None or (values is not None and not values.size):
        if noop:
            site.replace(reduce_nothing(site))
            return
        chosen = None
    elif values is None:
        site.replace(reduce_over(site, noop))
        return
    else:
        chosen = [int(axis) for axis in values.reshape(-1)]
    site.set_inputs(data)
    site.set(noop_with_empty_axes=None, axes=chosen)


def reduce_nothing(site: Site) -> Any:
    """The result of a reduction over no axes, which is elementwise."""
    data, op = site.input(0), site.op
    match site.node.op_type:
        case "ReduceL1" | "ReduceL2":
            return op.Abs(data)
        case "ReduceLogSum":
            return op.Log(data)
        case "ReduceSumSquare":
            return op.Mul(data, data)
    return op.Identity(data)
