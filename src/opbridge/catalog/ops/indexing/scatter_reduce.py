"""Reduction of elements into indexed positions, as ONNX ScatterElements."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from onnxscript import BOOL, INT64
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.element_types import FLOATS

_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def neutral(reduce: str, dtype: ir.DataType) -> Any:
    """The neutral element of the reduction."""
    if reduce in ("sum", "mean", "prod"):
        value: float = int(reduce == "prod")
    elif dtype in FLOATS:
        value = -math.inf if reduce == "amax" else math.inf
    else:
        limits = ml_dtypes.iinfo(dtype.numpy())
        value = limits.min if reduce == "amax" else limits.max
    return op.Cast(op.Constant(value=ir.tensor(np.asarray(value))), to=dtype)


@translation("aten::scatter_reduce.two", overrides="torch's mapping averages with a wrong count, and loses NaN")
def scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """``self`` with every element of ``src`` reduced into the position selected by ``index`` along ``dim``.

    scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor

    The mean is the sum divided by the count, rounded down for integers. A maximum or minimum propagates NaN.
    """
    if len(self.shape) == 0:
        one = op.Constant(value_ints=[1])
        flat = op.Constant(value_ints=[-1])
        rows = (op.Reshape(self, one), 0, op.Reshape(index, flat), op.Reshape(src, flat))
        return op.Reshape(_scattered(*rows, reduce, include_self, self.dtype), op.Constant(value_ints=[]))
    return _scattered(self, dim % len(self.shape), index, src, reduce, include_self, self.dtype)


def _scattered(self: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool, given: Any) -> Any:
    working = INT64.dtype if given == BOOL.dtype else given
    base, values = op.Cast(self, to=working), op.Cast(src, to=working)
    # As in PyTorch, src may be larger than the index.
    values = op.Slice(values, _zeros(index), op.Shape(index))
    ones = op.Expand(op.Constant(value_int=1), op.Shape(index))
    none = op.Expand(op.Constant(value_int=0), op.Shape(base))
    count = op.ScatterElements(none, index, ones, axis=axis, reduction="add")
    touched = op.Greater(count, op.Constant(value_int=0))
    start = base if include_self else op.Where(touched, neutral(reduce, working), base)
    result = op.ScatterElements(start, index, values, axis=axis, reduction=_REDUCTIONS[reduce])
    if reduce == "mean":
        share = op.Max(op.Add(count, op.Constant(value_int=1)) if include_self else count, op.Constant(value_int=1))
        result = divided(result, op.Cast(share, to=working), working)
    elif reduce in ("amax", "amin") and given in FLOATS and keeps_nan():
        missing = op.Cast(op.IsNaN(values), to=INT64.dtype)
        missing = op.ScatterElements(none, index, missing, axis=axis, reduction="add")
        is_nan = op.Greater(missing, op.Constant(value_int=0))
        if include_self:
            is_nan = op.Or(is_nan, op.IsNaN(base))
        result = op.Where(is_nan, op.Cast(op.Constant(value_float=math.nan), to=working), result)
    return op.Cast(result, to=given)


def _zeros(index: Any) -> Any:
    return op.Constant(value_ints=[0] * len(index.shape)) if index.shape is not None else op.Constant(value_ints=[0])


def divided(total: Any, count: Any, dtype: Any) -> Any:
    """The quotient, rounded down for integers."""
    if dtype in FLOATS:
        return op.Div(total, count)
    quotient = op.Div(total, count)
    # ONNX's integer division rounds towards 0; PyTorch rounds down.
    remainder = op.Sub(total, op.Mul(quotient, count))
    is_below = op.Less(remainder, op.CastLike(op.Constant(value_int=0), total))
    return op.Sub(quotient, op.Cast(is_below, to=dtype))


@decomposition("aten::scatter.reduce", overrides="torch.onnx maps scatter only without a reduction")
def scatter_reduced(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    """``self`` with elements of ``src`` added or multiplied.

    scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor
    """
    return torch.scatter_reduce(self, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


@decomposition("aten::scatter.value_reduce", overrides="torch.onnx maps scatter only without a reduction")
def scatter_value_reduced(self: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> Tensor:
    """``self`` with a number added or multiplied.

    scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor
    """
    source = torch.full_like(index, value, dtype=self.dtype)
    return torch.scatter_reduce(self, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])
