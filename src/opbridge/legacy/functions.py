"""Makes each autograd.Function that has a ``symbolic`` one operator of the graph while a model is captured.

User code may have stored ``my_op = F.apply`` at import, but ``apply`` looks up ``forward`` on the class at each call.
This module intercepts that look-up through the metaclass, during a capture and only in the capturing thread. This also
works for Functions that are defined, and for ``symbolic`` methods that are assigned, while the model runs, and it does
not modify the user's classes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from opbridge.legacy import switch
from opbridge.legacy.capture_state import Seen, answering_as_tracer, seen_now, using
from opbridge.legacy.function_calls import operator_for
from opbridge.legacy.registrations import operators_without_fake
from opbridge.legacy.symbolic_method import symbolic_for, symbolic_of
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.example_values import example_fakes
from opbridge.torch_graph.sources import source_of_stack

__all__ = ["bridging"]

_Meta = type(torch.autograd.Function)
_BASE = torch.autograd.Function
_lock = threading.Lock()
_captures = 0


@contextlib.contextmanager
def bridging() -> Iterator[Seen]:
    """Observe a capture. While the bridge is on, each Function with a ``symbolic`` becomes one operator.

    While the bridge is off, torch inlines the Functions, and they are recorded.
    """
    seen = Seen(switch.is_on())
    if seen.on:
        # They are needed until the program is translated.
        switch.until_off(example_fakes(operators_without_fake(), unknown_sizes=True))
    _count_capture(1)
    try:
        with (
            using(seen),
            answering_as_tracer(),
            torch_internals.exporting_to_onnx() if seen.on else contextlib.nullcontext(),
        ):
            yield seen
    finally:
        _count_capture(-1)
        for call in seen.calls.values():
            switch.note("autograd.Function", call.display_name, call.source, *call.notes, count=0)


def _count_capture(change: int) -> None:
    global _captures
    with _lock:
        _captures += change
        if _captures and "__getattribute__" not in vars(_Meta):
            _Meta.__getattribute__ = _getattribute  # type: ignore[method-assign,assignment]
        elif not _captures:
            del _Meta.__getattribute__


def _getattribute(cls: Any, name: str) -> Any:
    value = type.__getattribute__(cls, name)
    if name not in ("forward", "setup_context"):
        return value
    seen = seen_now()
    if seen is None or (symbolic_for(cls) if seen.on else symbolic_of(cls)) is None:
        return value
    seen.latest = cls
    if not seen.on:
        if cls not in seen.ignored:
            seen.ignored[cls] = str(source_of_stack() or "")
        return value
    separate = type.__getattribute__(cls, "setup_context") is not _BASE.setup_context
    if name == "forward":
        return _Replacement(cls, value, takes_ctx=not separate)
    return _no_context if separate else value


def _no_context(ctx: Any, inputs: Any, output: Any) -> None:
    """Replace ``setup_context``, because no gradient is computed while a model is captured."""


class _Replacement:
    """A ``forward`` that calls the operator of the Function, with the signature of the user's ``forward``."""

    def __init__(self, function: Any, forward: Callable[..., Any], takes_ctx: bool) -> None:
        self.__wrapped__ = forward
        self._function = function
        self._takes_ctx = takes_ctx

    def __getattr__(self, name: str) -> Any:
        # apply reads the code object, to convert keyword arguments to positional ones.
        return getattr(self.__wrapped__, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._takes_ctx and not (args and isinstance(args[0], torch.autograd.function.FunctionCtx)):
            return self.__wrapped__(*args, **kwargs)  # The user's code calls F.forward directly, without apply.
        ctx, given = (args[0], args[1:]) if self._takes_ctx else (None, args)
        call, inputs = operator_for(self._function, self.__wrapped__, given, kwargs, self._takes_ctx)
        values = call.overload(*inputs)
        seen = seen_now()
        assert seen is not None
        seen.calls[call.target] = call
        return call.outputs(values, inputs, ctx)
