"""The most frequent element, by sorting, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Mode", "median.h")


@decomposition("aten::mode")
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent elements along ``dim``, and its last index.

    mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    After sorting, equal elements form runs. The position within a run is largest at the end of the longest run.
    """
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values, order = torch.sort(self, dim=dim, stable=True)
    length = self.shape[dim]
    places = torch.arange(length).reshape([-1 if axis == dim % self.dim() else 1 for axis in range(self.dim())])
    places = places.expand(self.shape)
    begins = values.narrow(dim, 1, length - 1) != values.narrow(dim, 0, length - 1)
    starts = torch.where(begins, places.narrow(dim, 1, length - 1), 0)
    starts = torch.cat([torch.zeros_like(places.narrow(dim, 0, 1)), starts], dim)
    numbers = places - torch.cummax(starts, dim)[0]
    best = torch.argmax(numbers, dim, keepdim=True)
    values, indices = values.gather(dim, best), order.gather(dim, best)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@kernel_translation("aten::mode")
def mode_with_kernel(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """``mode`` as a custom node with a kernel.

    mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return custom_node("opbridge::Mode", self, num_outputs=2, dim=dim, keepdim=keepdim)


@body_for("opbridge::Mode")
def body(x: Tensor, dim: int, keepdim: int) -> tuple[Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    return torch.mode(x, dim, bool(keepdim))
