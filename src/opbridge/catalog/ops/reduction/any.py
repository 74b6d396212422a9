"""Whether any or all elements are true, also of no elements, and as uint8 for uint8."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_NONE = "torch's mapping takes the largest of no elements, which is true in ONNX Runtime"
_UINT8 = "torch's mapping gives a bool for uint8"


def _truth(self: Tensor) -> torch.dtype:
    return torch.uint8 if self.dtype is torch.uint8 else torch.bool


@decomposition("aten::any", overrides=_NONE)
def any_of_all(self: Tensor) -> Tensor:
    """Whether any element is true.

    any(Tensor self) -> Tensor
    """
    return self.bool().sum().bool().to(_truth(self))


@decomposition("aten::any.dim", overrides=_NONE)
def any_dim(self: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Whether any element along ``dim`` is true.

    any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor
    """
    return self.bool().sum(dim, keepdim).bool().to(_truth(self))


@decomposition("aten::any.dims", overrides=_NONE)
def any_dims(self: Tensor, dim: tuple[int, ...] | None = None, keepdim: bool = False) -> Tensor:
    """Whether any element along the dimensions is true; each element itself if there are none.

    any.dims(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor
    """
    truth = self.bool()
    return (truth if dim is not None and not dim else truth.sum(dim, keepdim).bool()).to(_truth(self))


@decomposition("aten::all", overrides=_UINT8)
@only_for(torch.uint8)
def all_of_all(self: Tensor) -> Tensor:
    """Whether all elements are true.

    all(Tensor self) -> Tensor
    """
    return self.bool().all().to(torch.uint8)


@decomposition("aten::all.dim", overrides=_UINT8)
@only_for(torch.uint8)
def all_dim(self: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Whether all elements along ``dim`` are true.

    all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor
    """
    return self.bool().all(dim, keepdim).to(torch.uint8)


@decomposition("aten::all.dims", overrides=_UINT8)
def all_dims(self: Tensor, dim: tuple[int, ...] | None = None, keepdim: bool = False) -> Tensor:
    """Whether all elements along the dimensions are true; each element itself if there are none.

    all.dims(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor
    """
    if dim is not None and not dim:
        return self.bool().to(_truth(self))
    return self.bool().all(dim, keepdim).to(torch.uint8) if self.dtype is torch.uint8 else NotImplemented
