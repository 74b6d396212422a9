"""Nested lists, tuples, dicts and objects of the user's classes as trees of the values in them.

torch's pytrees do not look into an object of a class that nobody has registered, such as a dataclass with the state of
a decoder. Here its attributes are parts of the tree, and it is made again of them.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = [
    "attributes_of",
    "is_object",
    "objects_in",
    "tree_flatten",
    "tree_leaves",
    "tree_structure",
    "tree_unflatten",
]

_NONE = object()


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes that an object of a class of Python has itself, also those of ``__slots__``."""
    slots = (name for cls in type(value).__mro__ for name in _slots(cls))
    own = {name: getattr(value, name) for name in slots if getattr(value, name, _NONE) is not _NONE}
    return {**own, **getattr(value, "__dict__", {})}


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


_NOT_OPENED = ("builtins", "torch", "numpy", "opbridge")
"""The packages of classes whose objects are not looked into."""

_OF_MODULES = frozenset(vars(nn.Module()))
_PARTS = (Tensor, list, tuple, dict, bool, int, float, torch.SymInt, torch.SymFloat, types.NoneType)


def _has_attributes(value: Any) -> bool:
    """Whether a value is an object of a class that is written in Python, and not a module, a function or a class."""
    if isinstance(value, (nn.Module, Tensor, type, enum.Enum)) or callable(value):
        return False
    return type(value).__new__ is object.__new__ and type(value).__module__.split(".")[0] not in _NOT_OPENED


def is_object(value: Any) -> bool:
    """Whether a value is an object whose attributes are values, so that it is a tree of them."""
    if not _has_attributes(value) or not pytree.tree_is_leaf(value):
        return False
    return any(isinstance(one, _PARTS) for one in attributes_of(value).values())


def objects_in(values: Iterable[Any]) -> list[Any]:
    """The modules and other objects with attributes among some values, in containers, and in attributes of these."""
    found: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    pending = list(values)
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        if isinstance(value, nn.Module):
            parts = {id(part): part for part in value.modules()}
            found.update(parts)
            seen.update(parts)
            pending += [one for part in parts.values() for key, one in vars(part).items() if key not in _OF_MODULES]
        elif isinstance(value, (list, tuple, dict)):
            seen[id(value)] = value
            pending += value.values() if isinstance(value, dict) else value
        elif _has_attributes(value):
            found[id(value)] = seen[id(value)] = value
            pending += attributes_of(value).values()
    return list(found.values())


class _Object:
    """An object as a node of a pytree."""

    def __init__(self, value: Any) -> None:
        self.type = type(value)
        self.attributes = {name: _opened(one) for name, one in attributes_of(value).items()}


def _made(values: Any, context: tuple[type, tuple[str, ...]]) -> Any:
    cls, names = context
    value: Any = object.__new__(cls)
    for name, one in zip(names, values, strict=True):
        object.__setattr__(value, name, one)
    return value


pytree.register_pytree_node(
    _Object,
    lambda node: (list(node.attributes.values()), (node.type, tuple(node.attributes))),
    _made,
    serialized_type_name="opbridge.Object",
)


def _opened(value: Any) -> Any:
    """The value with a node in the place of each object."""
    if not any(map(is_object, pytree.tree_leaves(value))):
        return value
    return pytree.tree_map(lambda leaf: _Object(leaf) if is_object(leaf) else leaf, value)


def tree_flatten(value: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """The leaves of a value, and its structure."""
    return pytree.tree_flatten(_opened(value))


def tree_leaves(value: Any) -> list[Any]:
    """The leaves of a value."""
    return pytree.tree_leaves(_opened(value))


def tree_structure(value: Any) -> pytree.TreeSpec:
    """The structure of a value."""
    return pytree.tree_structure(_opened(value))


def tree_unflatten(leaves: Any, structure: pytree.TreeSpec) -> Any:
    """The value with these leaves."""
    return pytree.tree_unflatten(leaves, structure)
