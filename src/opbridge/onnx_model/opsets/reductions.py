"""Reductions over axes that are known only at run time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.dynamic_shapes import axis_mask, reshape_exactly
from opbridge.onnx_model.opsets.site import Site

__all__ = ["reduce_over"]

_Unary = Callable[[Builder, ir.Value], ir.Value]


def _same(op: Builder, value: ir.Value) -> ir.Value:
    return value


# Each reduction consists of an operator before, an operator for each axis in turn, and an operator after.
_PARTS: dict[str, tuple[_Unary, str, _Unary]] = {
    "ReduceL1": (lambda op, x: op.Abs(x), "ReduceSum", _same),
    "ReduceL2": (lambda op, x: op.Mul(x, x), "ReduceSum", lambda op, x: op.Sqrt(x)),
    "ReduceLogSum": (_same, "ReduceSum", lambda op, x: op.Log(x)),
    "ReduceLogSumExp": (_same, "ReduceLogSumExp", _same),
    "ReduceSumSquare": (lambda op, x: op.Mul(x, x), "ReduceSum", _same),
}


def reduce_over(site: Site, noop_with_empty_axes: bool) -> ir.Value:
    """The result of the node: every axis that is in the axes input is reduced in turn."""
    op, data, axes = site.op, site.input(0), site.input(1)
    assert data is not None
    assert axes is not None
    rank = site.rank(data, "neither are its axes")
    before, reduction, after = _PARTS.get(site.node.op_type, (_same, site.node.op_type, _same))
    mask = axis_mask(op, axes, rank)
    if not noop_with_empty_axes:
        none = op.Equal(op.Size(axes), op.constant(np.array(0, dtype=np.int64)))
        mask = op.Or(mask, none)
    value = before(op, data)
    for axis in range(rank):
        chosen = op.Gather(mask, op.constant(np.array(axis)), axis=0)
        value = op.If(
            chosen,
            then_branch=op.graph("reduced", _reducing(reduction, value, axis)),
            else_branch=op.graph("kept", lambda inner, value=value: [inner.Identity(value)]),
        )
        value.type = data.type
    value = after(op, value)
    if site.attribute("keepdims"):
        return value
    return reshape_exactly(op, value, op.Compress(op.Shape(value), op.Not(mask), axis=0))


def _reducing(reduction: str, value: ir.Value, axis: int) -> Callable[[Builder], list[ir.Value]]:
    def body(inner: Builder) -> list[ir.Value]:
        if reduction != "ReduceSum" or inner.opset < 13:
            return [inner.make(reduction, value, axes=[axis], keepdims=1)]
        return [inner.make(reduction, value, inner.constant(np.array([axis])), keepdims=1)]

    return body
