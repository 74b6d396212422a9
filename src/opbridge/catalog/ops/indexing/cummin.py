"""The cumulative minimum, by the cumulative maximum in reversed order, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.catalog.ops.indexing.cummax import cummax
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::CumMin", "cummax.h")


@decomposition("aten::cummin")
def cummin(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The cumulative minimum along ``dim``, and the index of its latest occurrence; NaN counts as the smallest.

    cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)

    Negation reverses the order of floats. For integers it overflows at the lowest value; the bitwise complement does
    not, and also works for unsigned integers and bool.
    """
    if self.is_floating_point():
        values, indices = torch.cummax(-self, dim)
        return -values, indices
    values, indices = torch.cummax(~self, dim)
    return ~values, indices


@kernel_translation("aten::cummin")
def cummin_with_kernel(self: Any, dim: int) -> Any:
    """``cummin`` as a custom node with a kernel.

    cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)
    """
    if len(self.shape) == 0:
        return cummax(self, dim)  # Both are the element itself.
    return custom_node("opbridge::CumMin", self, num_outputs=2, dim=dim)


@body_for("opbridge::CumMin")
def body(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    return torch.cummin(x, dim)
