"""The Python functions behind operators of ``torch.library.custom_op`` and ``torch.library.impl``.

torch has no public way from an operator to its function. ``torch._library.custom_ops.OPDEFS`` is the table of the
definitions by ``custom_op``, and ``_init_fn`` is the decorated function. ``torch.library._impls`` names what ``impl``
has registered, as ``"mylib/my_op/CPU"``, and ``OpOverload._op_dk`` calls it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["python_implementations"]


_KEYS = ("CPU", "CompositeExplicitAutograd")
"""The dispatch keys of a function for the CPU, and of one for all devices; the first takes precedence."""

_OTHERS = ("aten", "prims", "opbridge_kept")
"""The namespaces of torch's own operators and of those that only stand for others during a decomposition."""


def python_implementations() -> Mapping[torch._ops.OpOverload, Callable[..., Any]]:
    """The functions with which PyTorch computes such operators on a CPU.

    Operators that change an input, and those for other devices only, are left out.
    """
    return {**_of_impl(), **_of_custom_op()}


def _of_custom_op() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    try:
        definitions = importlib.import_module("torch._library.custom_ops").OPDEFS
    except (ImportError, AttributeError):
        return {}
    found = {}
    for definition in definitions.values():
        overload, functions = definition._opoverload, definition._backend_fns
        if not overload._schema.is_mutable and functions.keys() & {None, "cpu"}:
            found[overload] = definition._init_fn if None in functions else functions["cpu"]
    return found


def _of_impl() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    # A library that is garbage-collected meanwhile removes its names.
    names = frozenset(getattr(torch.library, "_impls", ()))
    registered = [tuple(one.split("/")) for one in names if one.count("/") == 2]
    found: dict[torch._ops.OpOverload, Callable[..., Any]] = {}
    for key in reversed(_KEYS):
        for namespace, operator, own in registered:
            overload = None if own != key or namespace in _OTHERS else _overload(namespace, operator)
            if overload is not None and not overload._schema.is_mutable and hasattr(overload, "_op_dk"):
                found[overload] = functools.partial(overload._op_dk, getattr(torch._C.DispatchKey, key))
    return found


def _overload(namespace: str, operator: str) -> torch._ops.OpOverload | None:
    name, _, overload = operator.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, overload or "default", None)
