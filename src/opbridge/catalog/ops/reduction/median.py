"""Medians, defined as in PyTorch as the lower of the two middle elements: ONNX nodes or custom nodes with a kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.catalog.ops.indexing.kthvalue import first_place, smallest
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Median", "median.h")


def _along(self: Tensor, dim: int, keepdim: bool, skips_nan: bool) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    count = (self.shape[dim] - 1) // 2 + 1
    if not self.is_floating_point() or not (keeps_nan() or skips_nan):
        values = smallest(self, count, dim).amax(dim, keepdim=True)
    elif skips_nan:
        is_number = ~self.isnan()
        number_count = is_number.sum(dim, keepdim=True)
        half = torch.topk(torch.where(is_number, self, math.inf), count, dim, largest=False).values
        values = half.gather(dim, ((number_count - 1) // 2).clamp_min(0))
        values = torch.where(number_count > 0, values, math.nan)
    else:
        values = smallest(self, count, dim).amax(dim, keepdim=True)
        values = torch.where(self.isnan().any(dim, keepdim=True), math.nan, values)
    indices = first_place(self, values, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@decomposition("aten::median.dim")
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median along ``dim`` and its index, or NaN and the index of the first NaN.

    median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    Of equal elements the first index is returned; PyTorch returns any of them.
    """
    return _along(self, dim, keepdim, skips_nan=False)


@decomposition("aten::nanmedian.dim")
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median of the elements other than NaN along ``dim``, and its index.

    nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return _along(self, dim, keepdim, skips_nan=True)


def _of_all(self: Tensor, skips_nan: bool) -> Tensor:
    if self.numel() == 0:
        return torch.full((), math.nan, dtype=self.dtype)
    return _along(self.reshape(-1), 0, keepdim=False, skips_nan=skips_nan)[0]


@decomposition("aten::median.default")
def median(self: Tensor) -> Tensor:
    """The median of all elements; NaN if any element is NaN.

    median(Tensor self) -> Tensor
    """
    return _of_all(self, skips_nan=False)


@decomposition("aten::nanmedian.default")
def nanmedian(self: Tensor) -> Tensor:
    """The median of all elements other than NaN; NaN if there are none.

    nanmedian(Tensor self) -> Tensor
    """
    return _of_all(self, skips_nan=True)


@kernel_translation("aten::median.dim")
def median_dim_with_kernel(self: Any, dim: int, keepdim: bool = False) -> Any:
    """``median.dim`` as a custom node with a kernel.

    median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return _node(self, False, dim, keepdim)


@kernel_translation("aten::nanmedian.dim")
def nanmedian_dim_with_kernel(self: Any, dim: int, keepdim: bool = False) -> Any:
    """``nanmedian.dim`` as a custom node with a kernel.

    nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return _node(self, True, dim, keepdim)


@kernel_translation("aten::median.default")
def median_with_kernel(self: Any) -> Any:
    """``median`` as a custom node with a kernel.

    median(Tensor self) -> Tensor
    """
    return _node(_flat(self), False, 0, False)[0]


@kernel_translation("aten::nanmedian.default")
def nanmedian_with_kernel(self: Any) -> Any:
    """``nanmedian`` as a custom node with a kernel.

    nanmedian(Tensor self) -> Tensor
    """
    return _node(_flat(self), True, 0, False)[0]


def _node(self: Any, skips_nan: bool, dim: int, keepdim: bool) -> Any:
    return custom_node("opbridge::Median", self, num_outputs=2, skips_nan=skips_nan, dim=dim, keepdim=keepdim)


def _flat(self: Any) -> Any:
    return self if len(self.shape) <= 1 else op.Reshape(self, op.Constant(value_ints=[-1]))


@body_for("opbridge::Median")
def body(x: Tensor, skips_nan: int, dim: int, keepdim: int) -> tuple[Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    return (torch.nanmedian if skips_nan else torch.median)(x, dim, bool(keepdim))
