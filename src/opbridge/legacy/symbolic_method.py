"""The symbolic function of an autograd.Function: its own, or the one that is registered for those without."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opbridge.legacy import torch_registry

__all__ = ["PYTHON_OP", "symbolic_for", "symbolic_of"]

PYTHON_OP = "prim::PythonOp"
"""TorchScript's name for the call of any autograd.Function."""


def symbolic_of(function: Any) -> Callable[..., Any] | None:
    """Return the ``symbolic`` of an autograd.Function; None if it has none."""
    symbolic = getattr(function, "symbolic", None)
    return symbolic if callable(symbolic) else None


def symbolic_for(function: Any) -> Callable[..., Any] | None:
    """Return the ``symbolic`` of an autograd.Function, or what is registered for ``prim::PythonOp`` if it has none.

    torch's own Functions are captured as the operators that they call.
    """
    own = symbolic_of(function)
    if own is not None or function.__module__.partition(".")[0] == "torch":
        return own
    registered = torch_registry.registered().get(PYTHON_OP)
    return _by_name(registered[max(registered)], function) if registered else None


@functools.cache
def _by_name(handler: Callable[..., Any], function: Any) -> Callable[..., Any]:
    """Return a registered function in the form of a ``symbolic``: it gets the name of the Function by keyword."""

    @functools.wraps(handler)
    def symbolic(g: Any, *args: Any) -> Any:
        return handler(g, *args, inplace=0, module=function.__module__, name=function.__name__)

    return symbolic
