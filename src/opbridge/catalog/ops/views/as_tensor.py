"""``tensor``, ``as_tensor`` and ``new_tensor`` of lists of dynamic sizes and of tensors with one element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite

_DTYPES = {bool: torch.bool, torch.SymBool: torch.bool, int: torch.int64, torch.SymInt: torch.int64}
_FLOATS = (float, torch.SymFloat)


@rewrite("torch.tensor")
def tensor(original: Callable[..., Tensor], data: Any, **options: Any) -> Any:
    """A tensor of numbers some of which are tensors with one element, whose memory torch would read."""
    return _stacked(data, **options) if any(isinstance(number, Tensor) for number in _numbers(data)) else NotImplemented


@rewrite("torch.as_tensor")
def as_tensor(original: Callable[..., Tensor], data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """A tensor of numbers some of which are dynamic sizes, which torch would make constant, or tensors."""
    return _stacked(data, dtype, device) if _has_dynamic(data) else NotImplemented


@rewrite("torch.Tensor.new_tensor")
def new_tensor(original: Callable[..., Tensor], self: Tensor, data: Any, **options: Any) -> Any:
    """``as_tensor`` with the dtype and the device of a tensor."""
    given = {"dtype": self.dtype, "device": self.device, **options}
    return _stacked(data, **given) if _has_dynamic(data) else NotImplemented


def _numbers(data: Any) -> Sequence[Any]:
    """The numbers of a list, nested lists included; none if it contains anything else."""
    if isinstance(data, Tensor):
        return ()
    leaves = torch.utils._pytree.tree_leaves(data)
    known = all(isinstance(leaf, (Tensor, *_DTYPES, *_FLOATS)) for leaf in leaves)
    return leaves if known and all(leaf.numel() == 1 for leaf in leaves if isinstance(leaf, Tensor)) else ()


def _has_dynamic(data: Any) -> bool:
    return any(isinstance(number, (Tensor, torch.SymInt, torch.SymFloat)) for number in _numbers(data))


def _stacked(
    data: Any, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    dtype = dtype or functools.reduce(torch.promote_types, map(_dtype, _numbers(data)))
    return _nested(data, dtype, device)


def _dtype(number: Any) -> torch.dtype:
    if isinstance(number, Tensor):
        return number.dtype
    return torch.get_default_dtype() if isinstance(number, _FLOATS) else _DTYPES[type(number)]


def _nested(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_nested(part, dtype, device) for part in data])
    if isinstance(data, Tensor):
        return data.detach().reshape(()).to(device=device, dtype=dtype)
    return torch.scalar_tensor(data, dtype=dtype, device=device)
