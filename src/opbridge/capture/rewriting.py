"""Replaces Python functions and torch APIs only while a model is captured (rung ``rewrite``).

A torch API is replaced through a TorchFunctionMode. Such a mode does not see plain Python functions, and other modules
have references to them, so their code objects are swapped instead: every alias then runs the replacement. A lock
prevents two threads from swapping at the same time, other threads run the original function, and a ``finally`` restores
the code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError
from opbridge.torch_graph.originals import runs_originals
from opbridge.torch_graph.sources import source_of_stack

__all__ = ["Used", "rewriting"]

_MOST_LINES = 20
"""The number of uses of a rewrite whose line is looked up; a walk up the stack takes about a millisecond."""

_lock = threading.RLock()
_replacements: dict[str, Callable[..., Any]] = {}
_numbers = itertools.count()


class Used:
    """The rewrites that were used, and the user's lines that called the replaced functions."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def note(self, target: str) -> None:
        """Record a use of a rewrite by the executing line of the user's code."""
        lines = self._lines.setdefault(target, [])
        if len(lines) < _MOST_LINES:
            lines.append(str(source_of_stack() or ""))

    def sources(self) -> dict[str, tuple[str, ...]]:
        """The distinct lines, by the target of the rewrite."""
        return {target: tuple(filter(None, dict.fromkeys(lines))) for target, lines in self._lines.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)


@contextlib.contextmanager
def rewriting(specs: Sequence[OpSpec]) -> Iterator[Used]:
    """Apply the rewrites inside the block.

    A rewrite is skipped if its library is not imported in this process, because the model can't call it. A rewrite of
    the catalog is also skipped if this version of the library does not have the function. If a rewrite returns
    ``NotImplemented``, the original function is called, and the rewrite does not count as used.

    Yields:
        The rewrites that are used, to which each use is added.

    Raises:
        InputError: A target is neither a torch API nor a Python function.
    """
    used = Used()
    modes: dict[Any, OpSpec] = {}
    with _lock, contextlib.ExitStack() as stack:
        for spec in specs:
            original = _resolve(spec)
            if original is None:
                continue
            if isinstance(original, types.FunctionType):
                stack.enter_context(_swapped_code(original, spec, used))
            elif callable(original) and not isinstance(original, type):
                modes[original] = spec
            else:
                raise InputError(
                    f"@rewrite({spec.target!r}) at {spec.source}: {type(original).__name__} objects can't be replaced.",
                    fix="name a Python function, a method or a torch function by its import path.",
                )
        if modes:
            stack.enter_context(_Rewrites(modes, used))
        yield used


class _Rewrites(TorchFunctionMode):
    def __init__(self, specs: dict[Any, OpSpec], used: Used) -> None:
        super().__init__()
        self._specs = specs
        self._used = used

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if runs_originals():
            return func(*args, **(kwargs or {}))
        if func is torch.nn.functional.multi_head_attention_forward:
            with self:
                return _seen_by_modes(func)(*args, **(kwargs or {}))
        spec = self._specs.get(func)
        if spec is None:
            return func(*args, **(kwargs or {}))
        result = spec.function(func, *_python_numbers(args), **_python_numbers(kwargs or {}))
        if result is NotImplemented:
            return func(*args, **(kwargs or {}))
        self._used.note(spec.target)
        return result


def _python_numbers(value: Any) -> Any:
    """Arguments with NumPy's scalars as Python numbers: torch's functions take both, and rewrites only these."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_python_numbers, value))
    return {name: _python_numbers(item) for name, item in value.items()} if type(value) is dict else value


def _seen_by_modes(function: Any) -> Callable[..., Any]:
    """A function of torch that is written in Python, so that a mode sees the functions that it calls and not itself.

    It needs the name by which torch's functions ask for modes: ``has_torch_function``.
    """
    names = {**function.__globals__, "has_torch_function": lambda tensors: False}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _resolve(spec: OpSpec) -> Any:
    """The object at a rewrite's import path; None if there is nothing to replace."""
    path = spec.target
    parts = path.split(".")
    if parts[0] not in sys.modules:
        return None
    of_catalog = (getattr(spec.function, "__module__", None) or "").startswith("opbridge.catalog.ops.")
    for length in range(len(parts) - 1, 0, -1):
        try:
            # The catalog must not cause further imports of a large library.
            name = ".".join(parts[:length])
            found: Any = sys.modules[name] if of_catalog else importlib.import_module(name)
        except (ImportError, KeyError):
            continue
        try:
            for part in parts[length:]:
                found = inspect.getattr_static(found, part) if isinstance(found, type) else getattr(found, part)
        except AttributeError:
            break
        return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    if of_catalog:
        return None
    raise InputError(
        f"@rewrite({path!r}): there is no such function.",
        fix="check the import path; a newer version of the library may have moved it.",
    )


def _trampoline(*args: Any, **kwargs: Any) -> Any:
    from opbridge.capture.rewriting import _replacements

    return _replacements["KEY"](*args, **kwargs)


@contextlib.contextmanager
def _swapped_code(original: types.FunctionType, spec: OpSpec, used: Used) -> Iterator[None]:
    code = original.__code__
    unchanged = types.FunctionType(
        code, original.__globals__, original.__name__, original.__defaults__, original.__closure__
    )
    unchanged.__kwdefaults__ = original.__kwdefaults__
    thread = threading.get_ident()

    def replacement(*args: Any, **kwargs: Any) -> Any:
        # Dynamo traces this code in the functions of a loop or branch, and does not support threads.
        if torch.compiler.is_dynamo_compiling() or threading.get_ident() != thread or runs_originals():
            return unchanged(*args, **kwargs)
        of_torch = spec.target.startswith("torch.")
        given = (_python_numbers(args), _python_numbers(kwargs)) if of_torch else (args, kwargs)
        result = spec.function(unchanged, *given[0], **given[1])
        if result is NotImplemented:
            return unchanged(*args, **kwargs)
        used.note(spec.target)
        return result

    # The function may be replaced again by a nested rewriting.
    key = f"{spec.target} {next(_numbers)}"
    _replacements[key] = replacement
    template = _trampoline.__code__
    constants = tuple(key if constant == "KEY" else constant for constant in template.co_consts)
    # The function may be the captured forward pass, whose parameters determine the names of the inputs.
    attributes = dict(vars(original))
    original.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    original.__code__ = template.replace(co_consts=constants, co_freevars=code.co_freevars)
    try:
        yield
    finally:
        original.__code__ = code
        original.__dict__.clear()
        original.__dict__.update(attributes)
        del _replacements[key]
