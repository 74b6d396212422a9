"""Computations with shapes and axes that are known only at run time, in operators of the oldest opset."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.constants import known

__all__ = ["axis_mask", "reshape_exactly", "size_along", "squeeze", "unsqueeze"]


def axis_mask(op: Builder, axes: ir.Value, rank: int) -> ir.Value:
    """A bool for each of ``rank`` axes: whether it is in ``axes``, whose numbers may be negative."""
    numbers = op.constant(np.arange(rank, dtype=np.int64))
    wrapped = op.Mod(op.Add(op.Cast(axes, to=int(ir.DataType.INT64)), rank), rank)
    column = op.Reshape(numbers, op.constant(np.array([rank, 1])))
    row = op.Reshape(wrapped, op.constant(np.array([1, -1])))
    equal = op.Cast(op.Equal(column, row), to=int(ir.DataType.FLOAT))
    ones = op.Expand(op.constant(np.ones((1, 1), dtype=np.float32)), op.constant(np.array([rank, 1])))
    # A maximum over zero elements would be undefined.
    padded = op.Concat(equal, op.Sub(ones, ones), axis=1)
    found: ir.Value = op.Cast(op.make("ReduceMax", padded, axes=[1], keepdims=0), to=int(ir.DataType.BOOL))
    return found


def reshape_exactly(op: Builder, data: ir.Value | None, shape: ir.Value) -> ir.Value:
    """``data`` in a shape whose zeros mean zero; in a plain Reshape they would copy the input's sizes."""
    constant = known(shape)
    whole = data is not None and data.shape is not None and all(isinstance(n, int) and n for n in data.shape)
    if whole or (constant is not None and not (constant == 0).any()):
        reshaped: ir.Value = op.Reshape(data, shape)
        return reshaped
    # An empty input is padded to a shape without zeros, and then cropped.
    zero = op.constant(np.array(0, dtype=np.int64))
    empty = op.Equal(op.Size(data), zero)
    filled = op.Where(op.Less(shape, op.like(1, shape)), op.like([1], shape), shape)
    missing = op.Mul(op.make("ReduceProd", filled, axes=[0], keepdims=1), op.cast(empty, ir.DataType.INT64))
    filling = op.Expand(op.like(0, data), missing) if data is not None else None
    flat = op.Concat(op.Reshape(data, op.constant(np.array([-1]))), filling, axis=0)
    one = op.like([1], shape)
    whole_shape = op.Concat(one, op.Where(op.Equal(shape, zero), one, shape), axis=0)
    rest = op.Where(empty, zero, op.constant(np.array(np.iinfo(np.int64).max)))
    ends = op.Concat(one, op.Where(op.Less(shape, zero), rest, shape), axis=0)
    # An axis is added in front, because a scalar cannot be cropped.
    cut = op.Slice(op.Reshape(flat, whole_shape), op.Sub(ends, ends), ends)
    result: ir.Value = squeeze(op, cut, [0])
    return result


def size_along(op: Builder, data: ir.Value, axis: int) -> ir.Value:
    """The size of an axis as a tensor of rank 1."""
    if data.shape is not None and isinstance(data.shape[axis], int):
        fixed: ir.Value = op.constant(np.array([data.shape[axis]], dtype=np.int64))
        return fixed
    size: ir.Value = op.Gather(op.Shape(data), op.constant(np.array([axis], dtype=np.int64)), axis=0)
    return size


def unsqueeze(op: Builder, value: ir.Value, axes: list[int]) -> ir.Value:
    """``value`` with additional axes of size 1, in the form of the builder's opset."""
    if not axes:
        return value
    form = {"axes": axes} if op.opset < 13 else {}
    result: ir.Value = op.Unsqueeze(value, *([] if form else [op.constant(np.array(axes))]), **form)
    return result


def squeeze(op: Builder, value: ir.Value, axes: list[int]) -> ir.Value:
    """``value`` without the given axes of size 1, in the form of the builder's opset."""
    form = {"axes": axes} if op.opset < 13 else {}
    result: ir.Value = op.Squeeze(value, *([] if form else [op.constant(np.array(axes))]), **form)
    return result
