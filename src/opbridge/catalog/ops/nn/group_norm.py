"""Group normalisation of an empty tensor, and of one of a dynamic size."""

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
    """Nothing to normalise gives nothing, and a mean and 1 / sqrt(variance + eps) of 0 for each group; else torch's.

    native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group,
    float eps) -> (Tensor, Tensor, Tensor)
    """
    if not _is_empty(input):
        return NotImplemented
    none = input.new_zeros(N, group)
    return input.clone(), none, none.clone()


@rewrite("torch.nn.functional.group_norm")
def group_norm(original: Callable[..., Tensor], input: Tensor, *arguments: Any, **keywords: Any) -> Any:
    """Nothing of an empty tensor; no question whether a group has one element alone, which dynamic sizes fail.

    group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05,
    bool cudnn_enabled=True) -> Tensor
    """
    if _is_empty(input):
        return input.clone()
    if isinstance(input.numel(), int):
        return NotImplemented
    return torch.group_norm(input, *arguments, **keywords)


def _is_empty(x: Tensor) -> bool:
    """Whether a size is 0 for all inputs; another one may be dynamic."""
    return any(isinstance(size, int) and size == 0 for size in x.shape)
