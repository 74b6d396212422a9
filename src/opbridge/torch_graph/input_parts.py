"""The parts of an input that is a container, and ``dynamic_shapes`` in the form that torch.export takes for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils import _pytree as pytree

__all__ = ["map_declared"]

_PLAIN = (str, bool, int, float)


def map_declared(function: Callable[[str, Any, Any], Any], path: str, value: Any, declared: Any) -> Any:
    """``declared`` with the result of ``function`` for each leaf of the input: its path in Python, itself, its entry.

    torch.export takes the container of a list, a tuple, a dict or a named tuple, and the list of the parts of an object
    of another class. Here the entry of any of them may be None, a list or a tuple of entries, a dict of entries by key
    or attribute, in which parts that are not dynamic may be left out, or an object of its class. An entry that does not
    fit is returned as it is.

    Args:
        function: Called as ``function("state.h", value.h, {0: "n"})``.
        path: The path of the input.
        value: The input.
        declared: Its entry in ``dynamic_shapes``.
    """
    structure = pytree.tree_structure(value, is_leaf=lambda part: part is not value)
    if structure.is_leaf():
        return function(path, value, declared)
    try:
        parts = pytree.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)[0]
    except ValueError:  # A class is registered without the names of its parts, which torch.export refuses.
        return declared
    entries = _entries(value, parts, declared)
    if entries is None:
        return declared
    mapped = [
        map_declared(function, path + pytree.keystr((key,)), part, entry)
        for ((key,), part), entry in zip(parts, entries, strict=True)
    ]
    return pytree.tree_unflatten(mapped, structure) if structure.type in pytree.BUILTIN_TYPES else mapped


def _entries(value: Any, parts: list[Any], declared: Any) -> list[Any] | None:
    """The entry of each part; None if ``declared`` does not fit."""
    keys = [key for (key,), _ in parts]
    names = [getattr(key, "key", getattr(key, "name", None)) for key in keys]
    if declared is None:
        return [None] * len(keys)
    if isinstance(declared, Mapping):
        return [declared.get(name) for name in names] if declared.keys() <= set(names) else None
    if type(declared) is type(value) and all(isinstance(key, pytree.GetAttrKey) for key in keys):
        entries = [(getattr(declared, str(name)), part) for name, (_, part) in zip(names, parts, strict=True)]
        # A text or a number that has the default of its attribute is not declared.
        return [None if isinstance(entry, _PLAIN) and isinstance(part, _PLAIN) else entry for entry, part in entries]
    return list(declared) if isinstance(declared, tuple | list) and len(declared) == len(keys) else None
