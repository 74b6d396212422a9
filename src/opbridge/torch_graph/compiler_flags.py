"""Code that asks whether it is compiled: ``if mask is None and not torch.compiler.is_compiling(): mask = ...``.

Libraries leave out what they expect a compiler not to need, which may be what the code that follows needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterator

import torch

__all__ = ["CompilerFlags"]

_FUNCTIONS = ("is_compiling", "is_dynamo_compiling", "is_exporting")
_OWN = ("torch", "opbridge")

_is_dynamo_compiling = torch.compiler.is_dynamo_compiling


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
        functions = {name: getattr(torch.compiler, name) for name in _FUNCTIONS}
        modules = [vars(module) for module in list(sys.modules.values()) if module is not None]
        places = [(names, name) for names in modules for name in functions if names.get(name) is functions[name]]
        answers = {name: self._answering(function) for name, function in functions.items()}
        for names, name in places:
            names[name] = answers[name]
        try:
            yield
        finally:
            for names, name in places:
                names[name] = functions[name]

    def _answering(self, original: Callable[[], bool]) -> Callable[[], bool]:
        @functools.wraps(original)
        def answer() -> bool:
            # Dynamo traces this in the functions of a loop or branch, and does not support frames.
            if not _is_dynamo_compiling() and _is_own(sys._getframe(1)):
                return original()
            self.asked = True
            return original() and not self.as_eager

        return answer


def _is_own(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _OWN
