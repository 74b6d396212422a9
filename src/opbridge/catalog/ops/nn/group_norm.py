"""Group normalization of empty tensors and of tensors with dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite


@decomposition("aten::native_group_norm", overrides="torch's mapping fails for an empty tensor")
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    """An empty result, with a mean and 1 / sqrt(variance + eps) of 0 per group; other tensors are left to torch.

    native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group,
    float eps) -> (Tensor, Tensor, Tensor)
    """
    if not _is_empty(input):
        return NotImplemented
    none = input.new_zeros(N, group)
    return input.clone(), none, none.clone()


@rewrite("torch.nn.functional.group_norm")
def group_norm(original: Callable[..., Tensor], input: Tensor, *arguments: Any, **keywords: Any) -> Any:
    """An empty result for an empty tensor; otherwise torch's operator without its check of the group size.

    group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05,
    bool cudnn_enabled=True) -> Tensor
    """
    if _is_empty(input):
        return input.clone()
    if isinstance(input.numel(), int):
        return NotImplemented
    return torch.group_norm(input, *arguments, **keywords)


def _is_empty(x: Tensor) -> bool:
    """Whether a size is the constant 0."""
    return any(isinstance(size, int) and size == 0 for size in x.shape)
