"""Counts or weights of integers."""

from __future__ import annotations

from typing import Any

from onnxscript import DOUBLE, FLOAT, INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::bincount", overrides="torch's mapping does not support weights")
def bincount(self: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """The sum of the weights of each number from 0 to the largest, for at least ``minlength`` numbers.

    bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor
    """
    index, one = op.Cast(self, to=INT64.dtype), op.Constant(value_ints=[1])
    least = op.Constant(value_ints=[minlength]) if isinstance(minlength, int) else op.Reshape(minlength, one)
    # An empty tensor has no largest number.
    largest = op.ReduceMax(op.Concat(index, op.Sub(least, one), axis=0), keepdims=1)
    if weights is None:
        dtype, values = INT64.dtype, op.Expand(one, op.Shape(index))
    else:
        dtype = FLOAT.dtype if weights.dtype == FLOAT.dtype else DOUBLE.dtype
        values = op.Cast(weights, to=dtype)
    zeros = op.Cast(op.ConstantOfShape(op.Add(largest, one)), to=dtype)
    return op.ScatterElements(zeros, index, values, axis=0, reduction="add")
