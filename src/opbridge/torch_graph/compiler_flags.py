"""Code that asks whether it is compiled: ``if mask is None and not torch.compiler.is_compiling(): mask = ...``.

Libraries leave out what they expect a compiler not to need, which may be what the code that follows needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator

import torch

__all__ = ["CompilerFlags"]

_FUNCTIONS = ("is_compiling", "is_dynamo_compiling", "is_exporting")
_OWN = ("torch", "opbridge")

_answers: dict[str, Callable[[], bool]] = {}


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
        """Answer for ``torch.compiler.is_compiling`` and the like inside the block, except to torch itself.

        The code of these functions is replaced, because Dynamo, which traces loops and branches, knows the functions
        themselves.
        """
        functions = {name: getattr(torch.compiler, name) for name in _FUNCTIONS}
        before = {name: function.__code__ for name, function in functions.items()}
        outside = dict(_answers)
        for name, function in functions.items():
            unchanged = types.FunctionType(before[name], function.__globals__)
            _answers[name] = self._answering(unchanged)
            names = tuple(name if constant == "NAME" else constant for constant in _ask.__code__.co_consts)
            function.__code__ = _ask.__code__.replace(co_consts=names, co_name=name)
        try:
            yield
        finally:
            for name, function in functions.items():
                function.__code__ = before[name]
            _answers.clear()
            _answers.update(outside)

    def _answering(self, original: Callable[[], bool]) -> Callable[[], bool]:
        def answer() -> bool:
            caller = sys._getframe(2).f_globals.get("__name__", "")
            if caller.partition(".")[0] in _OWN:
                return original()
            self.asked = True
            return original() and not self.as_eager

        return answer


def _ask() -> bool:
    from opbridge.torch_graph.compiler_flags import _answers

    return _answers["NAME"]()
