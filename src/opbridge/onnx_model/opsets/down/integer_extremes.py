"""Max, Min, Clip of integers since opset 12, Relu of integers since opset 14."""

from typing import Any

import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_D = ir.DataType
_WIDE = {_D.INT32: _D.INT32, _D.INT64: _D.INT64, _D.UINT32: _D.INT64, _D.UINT64: _D.UINT64}


@down("Max", "Min", version=12)
def chosen_by_comparing(site: Site) -> None:
    """For integers, the node becomes comparisons."""
    first = site.input(0)
    if _is_integer(first):
        op, wide = site.op, _wide(first)
        result, *others = (op.cast(value, wide) for value in site.node.inputs if value is not None)
        for other in others:
            result = _extreme(op, site.node.op_type, result, other)
        site.replace(op.cast(result, site.dtype(first)))


@down("Clip", version=12)
def clipped_by_comparing(site: Site) -> None:
    """For integers, the node becomes comparisons."""
    data, low, high = (site.input(position) for position in range(3))
    if _is_integer(data):
        op, wide = site.op, _wide(data)
        result = op.cast(data, wide)
        if low is not None:
            result = _extreme(op, "Max", result, op.cast(low, wide))
        if high is not None:
            result = _extreme(op, "Min", result, op.cast(high, wide))
        site.replace(op.cast(result, site.dtype(data)))


@down("Relu", version=14)
def maximum(site: Site) -> None:
    """For integers, the node becomes a maximum with zero."""
    data = site.input(0)
    if _is_integer(data):
        site.replace(site.op.Max(data, 0))


def _is_integer(value: ir.Value | None) -> bool:
    # An unknown type is left unchanged; an engine that does not support it reports it.
    return value is not None and value.dtype is not None and value.dtype.is_integer()


def _wide(value: Any) -> Any:
    return _WIDE.get(value.dtype, _D.INT32)


def _extreme(op: Builder, op_type: str, one: Any, other: Any) -> Any:
    return op.Where(op.make("Less" if op_type == "Min" else "Greater", one, other), one, other)
