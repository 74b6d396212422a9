"""Counts or weights of integers, as ONNX nodes or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import DOUBLE, FLOAT, INT32, INT64
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation, translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::BinCount", "bincount.h")
kernel_for("opbridge::WeightedBinCount", "bincount.h")


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


@kernel_translation("aten::bincount")
def bincount_with_kernel(self: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """``bincount`` as a custom node with a kernel.

    bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor
    """
    if not isinstance(minlength, int):
        return bincount(self, weights, minlength)
    index = self if self.dtype in (INT32.dtype, INT64.dtype) else op.Cast(self, to=INT64.dtype)
    if weights is None:
        return custom_node("opbridge::BinCount", index, minlength=minlength)
    if weights.dtype not in (FLOAT.dtype, DOUBLE.dtype):
        weights = op.Cast(weights, to=DOUBLE.dtype)
    return custom_node("opbridge::WeightedBinCount", index, weights, minlength=minlength)


@body_for("opbridge::BinCount")
def body(x: Tensor, minlength: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.bincount(x, minlength=minlength)


@body_for("opbridge::WeightedBinCount")
def weighted_body(x: Tensor, weights: Tensor, minlength: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.bincount(x, weights, minlength)
