"""Nested lists, tuples, dicts and objects of the user's classes as trees of the values in them.

torch's pytrees do not look into an object of a class that nobody has registered, such as a dataclass with the state of
a decoder. Here its attributes are parts of the tree, and it is made again of them.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = [
    "attributes_of",
    "is_object",
    "objects_in",
    "read_only",
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


def read_only(value: Any, refuse: Callable[[], NoReturn]) -> Any:
    """A copy of a value whose lists, dicts and objects can't be changed, because nothing would see the change.

    Args:
        value: Nested lists, tuples, dicts and objects of values.
        refuse: Is called if one of them is changed. A list becomes a tuple, which raises Python's error.
    """
    if type(value) in (list, tuple):
        return tuple(read_only(one, refuse) for one in value)
    if type(value) is dict:
        return _Dict({key: read_only(one, refuse) for key, one in value.items()}, refuse)
    if not is_object(value):
        return value
    copied: Any = object.__new__(_read_only_class(type(value), refuse))  # type: ignore[arg-type]
    for name, one in attributes_of(value).items():
        object.__setattr__(copied, name, read_only(one, refuse))
    return copied


@functools.cache
def _read_only_class(cls: type, refuse: Callable[[], NoReturn]) -> type:
    own = {name: lambda *arguments: refuse() for name in ("__setattr__", "__delattr__")}
    return type(cls.__name__, (cls,), {**own, "__module__": cls.__module__, "__slots__": ()})


class _Dict(dict[Any, Any]):
    """A dict that can't be changed."""

    def __init__(self, items: dict[Any, Any], refuse: Callable[[], NoReturn]) -> None:
        super().__init__(items)
        self._refuse = refuse

    def _changed(self, *arguments: Any, **named: Any) -> NoReturn:
        self._refuse()

    __setitem__ = __delitem__ = update = pop = popitem = setdefault = clear = __ior__ = _changed  # type: ignore[assignment]


pytree.register_pytree_node(
    _Dict,
    lambda value: (list(value.values()), (tuple(value), value._refuse)),
    lambda values, context: _Dict(dict(zip(context[0], values, strict=True)), context[1]),
    serialized_type_name="opbridge.ReadOnlyDict",
)
