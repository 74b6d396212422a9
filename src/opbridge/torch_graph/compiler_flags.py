"""Code that asks whether it is compiled: ``if mask is None and not torch.compiler.is_compiling(): mask = ...``.

Libraries leave out what they expect a compiler not to need, which may be what the code that follows needs.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import sys
import threading
import types
from collections.abc import Iterator

import torch

__all__ = ["CompilerFlags"]

_OWN = ("torch", "opbridge")


@dataclasses.dataclass
class CompilerFlags:
    """What a model is told that asks whether it is compiled.

    Attributes:
        asked: Whether it has asked.
        as_eager: Whether it is told that it is not.
    """

    asked: bool = False
    as_eager: bool = False

    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """Answer for ``torch.compiler.is_compiling`` and the like inside the block, except to torch itself."""
        token = _current.set(self)
        try:
            with _replaced:
                yield
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[CompilerFlags | None] = contextvars.ContextVar("compiler_flags", default=None)


def _answer(name: str) -> bool:
    """What the function of this name returns to the code that calls it."""
    answer = bool(_ORIGINALS[name]())
    flags, caller = _current.get(), sys._getframe(2).f_globals.get("__name__", "")
    if flags is None or caller.partition(".")[0] in _OWN:
        return answer
    flags.asked = True
    return answer and not flags.as_eager


def _ask() -> bool:
    from opbridge.torch_graph.compiler_flags import _answer

    return _answer("NAME")


def _asking(name: str) -> types.CodeType:
    """The code of a function that calls :func:`_answer`."""
    constants = tuple(name if constant == "NAME" else constant for constant in _ask.__code__.co_consts)
    return _ask.__code__.replace(co_consts=constants, co_name=name)


class _Replaced:
    """While a thread is inside, the functions of torch have other code.

    Their code is replaced and not they, because Dynamo, which traces loops and branches, knows the functions.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            for name, function in _FUNCTIONS.items():
                function.__code__ = _asking(name)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            for name, function in _FUNCTIONS.items() if not self._inside else ():
                function.__code__ = _ORIGINALS[name].__code__


_FUNCTIONS = {name: getattr(torch.compiler, name) for name in ("is_compiling", "is_dynamo_compiling", "is_exporting")}
_ORIGINALS = {name: types.FunctionType(one.__code__, one.__globals__) for name, one in _FUNCTIONS.items()}
_replaced = _Replaced()
