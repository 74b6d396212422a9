"""The Python functions behind operators of ``torch.library.custom_op``.

torch has no public way from an operator to its function: ``torch._library.custom_ops.OPDEFS`` is the table of the
definitions, and ``_init_fn`` is the decorated function.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["python_implementations"]


def python_implementations() -> Mapping[torch._ops.OpOverload, Callable[..., Any]]:
    """The functions with which PyTorch computes the operators of ``torch.library.custom_op`` on a CPU.

    Operators that change an input, and those for other devices only, are left out.
    """
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
