"""Lists whose length is known only at run time, in functions that are not converted and would take them for others.

Such a list has one element in the place of several. ``rows[1:]``, ``rows + rows`` and the like are right in converted
code only, so that a function is converted when a list reaches it: as an argument, as an attribute of ``self``, or as a
result.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from opbridge.capture.control_flow.exits import PREFIX
from opbridge.capture.control_flow.expressions import reason_not_to_convert
from opbridge.capture.control_flow.list_uses import refuse_use
from opbridge.capture.control_flow.rows import has_rows
from opbridge.capture.control_flow.site import Function
from opbridge.torch_graph.sources import SourceLine, full_path
from opbridge.torch_graph.statements import enclosing_function

__all__ = ["passing_lists", "returned", "with_lists"]

_INTERNAL = {"torch", "opbridge", "numpy", *sys.stdlib_module_names}

_known: contextvars.ContextVar[Collection[Function]] = contextvars.ContextVar("known", default=())


@contextlib.contextmanager
def passing_lists(known: Collection[Function]) -> Iterator[None]:
    """Let lists reach functions inside the block; an error asks for the conversion of one that is not among these."""
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)


def with_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that converted code calls."""
    code = _code(function)
    if code is None:
        return function

    def called(*arguments: Any, **options: Any) -> Any:
        attributes = getattr(getattr(function, "__self__", None), "__dict__", {})
        if _has_list([*arguments, *options.values()]) or _has_list(attributes):
            _convert(code, code.co_firstlineno)
        return function(*arguments, **options)

    return called


def returned(value: Any) -> Any:
    """The result of a converted function."""
    if _has_list(value):
        frame = sys._getframe(1).f_back
        while frame is not None and (_is_internal(frame.f_globals.get("__name__")) or _is_converted(frame.f_code)):
            caller = frame.f_locals.get("self")
            for code in map(_code, caller if isinstance(caller, torch.nn.Sequential) else ()):
                if code is not None:
                    _convert(code, code.co_firstlineno)
            frame = frame.f_back
        if frame is not None:
            _convert(frame.f_code, frame.f_lineno)
    return value


def _code(function: Any) -> types.CodeType | None:
    """The code of a function that is not converted; None for a converted one, and for what is not the model's."""
    if isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    elif not isinstance(function, (type, types.FunctionType, types.MethodType)):
        function = inspect.getattr_static(type(function), "__call__", None)
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or _is_internal(function.__module__):
        return None
    return None if _is_converted(function.__code__) else function.__code__


def _is_internal(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _INTERNAL


def _is_converted(code: types.CodeType) -> bool:
    return any(name.startswith(PREFIX) for name in (*code.co_varnames, *code.co_freevars, *code.co_cellvars))


def _has_list(value: Any) -> bool:
    """Whether a value is a list with rows, or has one among its elements or values."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return False
    return has_rows(value) or any(has_rows(one) for one in value)


def _convert(code: types.CodeType, line: int) -> None:
    """Ask for the conversion of a function, unless that has failed."""
    first = min((at for *_, at in code.co_lines() if at is not None and at > code.co_firstlineno), default=line)
    place = SourceLine(full_path(code.co_filename), first)
    node = enclosing_function(place)
    if node is None or Function(place.file, node.lineno) in _known.get() or reason_not_to_convert(node) is not None:
        return
    error = refuse_use("a function that was not converted")
    error.place = place
    raise error
