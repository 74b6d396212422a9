"""Rewriters of functions of torch's old exporter, such as ``torch.onnx.symbolic_opset9._generic_rnn``.

torch's symbolic functions call these functions. The operators whose symbolic functions do are exported with them while
such a function is replaced; otherwise, torch.onnx and opbridge have mappings of their own for these operators.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from opbridge.legacy import torch_registry
from opbridge.torch_graph import internals as torch_internals

__all__ = ["is_in_exporter", "operators_calling", "replaced_in_exporter"]

_PREFIX = "torch.onnx."
_NEWEST_OPSET = 17
"""The newest opset for which torch has symbolic functions of its own for most operators."""


def is_in_exporter(path: str) -> bool:
    """Return whether an import path names a function of a module of torch's old exporter."""
    module, _, name = path.removeprefix(_PREFIX).rpartition(".")
    return path.startswith(_PREFIX) and bool(module) and hasattr(torch_internals.old_exporter(module), name)


@contextlib.contextmanager
def replaced_in_exporter(path: str, replacement: Callable[..., Any]) -> Iterator[dict[str, Callable[..., Any]]]:
    """Replace a function of torch's old exporter inside the block.

    Args:
        path: Its import path, for which :func:`is_in_exporter` is true.
        replacement: The new function, which takes the replaced one before the arguments.

    Yields:
        The symbolic functions to register, by operator: those of torch that call the function.
    """
    name, _, attribute = path.removeprefix(_PREFIX).rpartition(".")
    module: Any = torch_internals.old_exporter(name)
    original = getattr(module, attribute)
    operators = operators_calling(module, attribute)
    setattr(module, attribute, functools.partial(replacement, original))
    try:
        yield {name: _named_after(function, replacement) for name, function in operators.items()}
    finally:
        setattr(module, attribute, original)


def operators_calling(module: types.ModuleType, name: str) -> dict[str, Callable[..., Any]]:
    """Return torch's symbolic functions that call a function of a module, directly or through others, by operator."""
    functions = {one: torch_registry.symbolic_function(one, _NEWEST_OPSET) for one in torch_registry.names()}
    return {one: found for one, found in functions.items() if found and _calls(found, module, name, set())}


def _calls(function: Any, module: types.ModuleType, name: str, seen: set[int]) -> bool:
    if id(function) in seen or not isinstance(function, (types.FunctionType, functools.partial)):
        return False
    seen.add(id(function))
    if isinstance(function, functools.partial):
        return _calls(function.func, module, name, seen)
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    if function.__globals__ is vars(module):
        names = set(_names(function.__code__))
        if name in names:
            return True
        inside += [vars(module).get(used) for used in names]
    return any(_calls(item, module, name, seen) for item in inside)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _names(constant)


def _named_after(function: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's symbolic function with the place of the user's, for messages."""

    def symbolic(g: Any, *args: Any) -> Any:
        return function(g, *args)

    symbolic.__wrapped__ = replacement  # type: ignore[attr-defined]
    return symbolic
