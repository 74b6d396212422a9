"""Cumulative log-sum-exp, as an ONNX Loop of log2(length) iterations, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any, TypeVar, Union

import torch
from onnxscript import DOUBLE, FLOAT, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation, translation
from opbridge.catalog.formulas.element_types import HALVES
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::LogCumSumExp", "cumulative.h")

Wide = TypeVar("Wide", bound=Union[FLOAT, DOUBLE])  # noqa: UP007 - onnxscript reads typing.Union


@script()
def _running_log_sum(x: Wide, axis: int) -> Wide:  # type: ignore[valid-type]
    """After k iterations each element is the sum of 2**k exponentials, scaled by the largest of them."""
    along = op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1]))
    start = op.Constant(value_ints=[0])
    end = op.Constant(value_ints=[9223372036854775807])
    none = op.CastLike(op.Constant(value_float=0.0), x)
    length = op.Gather(op.Shape(x), along)
    largest = x
    total = op.Expand(op.CastLike(op.Constant(value_float=1.0), x), op.Shape(x))
    reach = op.Constant(value_ints=[1])
    unfinished = op.Squeeze(op.Less(reach, length))
    while unfinished:
        own = op.Slice(largest, reach, end, along)
        other = op.Slice(largest, start, op.Neg(reach), along)
        both = op.Max(own, other)
        # The difference of two infinities would be NaN.
        own_part = op.Exp(op.Where(op.Equal(own, both), none, op.Sub(own, both)))
        other_part = op.Exp(op.Where(op.Equal(other, both), none, op.Sub(other, both)))
        own_total = op.Mul(op.Slice(total, reach, end, along), own_part)
        other_total = op.Mul(op.Slice(total, start, op.Neg(reach), along), other_part)
        largest = op.Concat(op.Slice(largest, start, reach, along), both, axis=axis)
        total = op.Concat(op.Slice(total, start, reach, along), op.Add(own_total, other_total), axis=axis)
        reach = reach + reach
        unfinished = op.Squeeze(op.Less(reach, length))
    return op.Add(largest, op.Log(total))


@translation("aten::logcumsumexp", overrides="torch's mapping is -inf if a later element is larger by 104")
def logcumsumexp(self: Any, dim: int) -> Any:
    """The cumulative log-sum-exp along ``dim``, scaled by the largest element so far.

    logcumsumexp(Tensor self, int dim) -> Tensor

    The algorithm is recursive doubling (Hillis and Steele, "Data parallel algorithms", 1986) of scaled sums.
    """
    rank = len(self.shape)
    if rank == 0:
        return op.Identity(self)
    x = op.Cast(self, to=FLOAT.dtype) if self.dtype in HALVES else self
    return op.CastLike(_running_log_sum(x, axis=dim % rank), self)


@kernel_translation("aten::logcumsumexp")
def logcumsumexp_with_kernel(self: Any, dim: int) -> Any:
    """``logcumsumexp`` as a custom node with a kernel.

    logcumsumexp(Tensor self, int dim) -> Tensor
    """
    if len(self.shape) == 0:
        return logcumsumexp(self, dim)
    x = op.Cast(self, to=FLOAT.dtype) if self.dtype in HALVES else self
    return op.CastLike(custom_node("opbridge::LogCumSumExp", x, dim=dim), self)


@body_for("opbridge::LogCumSumExp")
def body(x: Tensor, dim: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.logcumsumexp(x, dim)
