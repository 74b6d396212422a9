"""Conversion of output objects of any class, such as caches, to containers of tensors that torch supports."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["opened", "opening_outputs"]

_LEAVES = (torch.Tensor, torch.nn.Module, torch.SymInt, torch.SymFloat, torch.SymBool, type)


@contextlib.contextmanager
def opening_outputs(module: torch.nn.Module) -> Iterator[None]:
    """Make ``module`` return its outputs :func:`opened` inside the block, and dynamic numbers as tensors."""
    hook = module.register_forward_hook(lambda module, args, output: tree_map(_as_tensor, opened(output)))
    try:
        yield
    finally:
        hook.remove()


def _as_tensor(leaf: Any) -> Any:
    """A float or bool that depends on data, which torch.onnx makes no output of, as ``torch.tensor`` would make it."""
    if isinstance(leaf, torch.SymBool):
        return torch.scalar_tensor(torch.sym_ite(leaf, 1, 0), dtype=torch.bool)
    return torch.scalar_tensor(leaf) if isinstance(leaf, torch.SymFloat) else leaf


def opened(value: Any) -> Any:
    """``value`` with each object of an unregistered class replaced by a dict of its tensors, by attribute.

    A mapping of a library's own class, such as the outputs of transformers and diffusers, becomes a dict. Objects
    without tensors are not changed; neither are sets and generators, which have no defined order.
    """
    return _opened(value, (), {})


def _opened(value: Any, outer: tuple[Any, ...], without: dict[int, Any]) -> Any:
    return tree_map(lambda leaf: _opened_object(leaf, outer, without), value, is_leaf=_is_mapping_of_own_class)


def _is_mapping_of_own_class(value: Any) -> bool:
    return isinstance(value, Mapping) and type(value) not in (dict, OrderedDict, defaultdict)


def _opened_object(leaf: Any, outer: tuple[Any, ...], without: dict[int, Any]) -> Any:
    """An object's tensors in nested dicts, or the object itself if it has none.

    Args:
        leaf: The object.
        outer: The enclosing objects.
        without: The objects without tensors that were visited, by their identity: each can be reached in many ways.
    """
    if isinstance(leaf, _LEAVES) or id(leaf) in without or any(leaf is known for known in outer):
        return leaf
    if isinstance(leaf, Mapping):
        return {key: _opened(held, (*outer, leaf), without) for key, held in leaf.items()}
    attributes = getattr(leaf, "__dict__", None) or {}
    inner = {name: _opened(held, (*outer, leaf), without) for name, held in attributes.items()}
    found = {name: tree_map(_only_tensor, held) for name, held in inner.items() if _holds_tensor(held)}
    if not found:
        without[id(leaf)] = leaf
    return found or leaf


def _holds_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))


def _only_tensor(leaf: Any) -> Any:
    return leaf if isinstance(leaf, torch.Tensor) else None
