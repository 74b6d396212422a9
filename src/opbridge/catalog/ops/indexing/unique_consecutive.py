"""Runs of equal elements, as ONNX nodes or as a custom node with a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import INT64
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation, rewrite, translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::UniqueConsecutive", "unique_consecutive.h")


@rewrite("torch.functional._unique_consecutive_impl")
def unique_consecutive_from_the_front(
    original: Callable[..., Any],
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The same with ``dim`` from 0 on: the shape function of torch adds a dimension if ``dim`` is negative."""
    if dim is None or dim >= 0:
        return NotImplemented
    return original(input, return_inverse, return_counts, dim % max(input.dim(), 1))


@translation("aten::unique_consecutive", overrides="torch's mapping fails")
def unique_consecutive(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """One element (or slice along ``dim``) of each run, the run of each element, and the lengths of the runs.

    unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False,
    int? dim=None) -> (Tensor, Tensor, Tensor)
    """
    axis = 0 if dim is None or not self.shape else dim % len(self.shape)
    x = op.Reshape(self, op.Constant(value_ints=[-1])) if dim is None or not self.shape else self
    rank = 1 if x is not self else len(self.shape)
    length = op.Shape(x, start=axis, end=axis + 1)
    first, one, along = (op.Constant(value_ints=[value]) for value in (0, 1, axis))
    later = op.Slice(x, one, length, along)
    earlier = op.Slice(x, first, op.Sub(length, one), along)
    differs = op.Not(op.Equal(later, earlier))
    others = [place for place in range(rank) if place != axis]
    if others:
        numbers = op.ReduceMax(op.Cast(differs, to=INT64.dtype), op.Constant(value_ints=others), keepdims=0)
        # The largest of no numbers is the smallest of the type.
        differs = op.Greater(numbers, op.Constant(value_int=0))
    empty = op.Constant(value_ints=[])
    if not return_inverse and not return_counts:
        kept = op.Concat(op.Slice(x, first, one, along), op.Compress(later, differs, axis=axis), axis=axis)
        return kept, empty, empty
    # The first element, if there is one, begins a run.
    start = op.Expand(op.Constant(value=ir.tensor(True)), op.Min(length, one))
    begins = op.Concat(start, differs, axis=0)
    kept = op.Compress(x, begins, axis=axis)
    inverse, counts = empty, empty
    if return_inverse:
        inverse = op.Sub(op.CumSum(op.Cast(begins, to=INT64.dtype), op.Constant(value_int=0)), op.Constant(value_int=1))
        inverse = op.Reshape(inverse, op.Shape(self), allowzero=1) if x is not self else inverse
    if return_counts:
        places = op.Reshape(op.NonZero(begins), op.Constant(value_ints=[-1]))
        ends = op.Concat(op.Slice(places, one, op.Constant(value_ints=[2**62])), length, axis=0)
        counts = op.Sub(op.Slice(ends, first, op.Shape(places)), places)
    return kept, inverse, counts


@kernel_translation("aten::unique_consecutive")
def unique_consecutive_with_kernel(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """``unique_consecutive`` of elements as a custom node with a kernel; of slices as it is.

    unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False,
    int? dim=None) -> (Tensor, Tensor, Tensor)
    """
    if len(self.shape) == 0 or (dim is not None and len(self.shape) > 1):
        return unique_consecutive(self, return_inverse, return_counts, dim)
    return custom_node(
        "opbridge::UniqueConsecutive", self, num_outputs=3, return_inverse=return_inverse, return_counts=return_counts
    )


@body_for("opbridge::UniqueConsecutive")
def body(x: Tensor, return_inverse: int, return_counts: int) -> tuple[Tensor, Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    found = torch.ops.aten.unique_consecutive(x, bool(return_inverse), bool(return_counts))
    return found  # type: ignore[no-any-return]
