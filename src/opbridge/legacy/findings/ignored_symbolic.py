"""An autograd.Function has a ``symbolic`` that the modern exporter never calls.

What it means: torch.export inlines the Function's ``forward``.

Why it is a problem: ``symbolic`` defines the nodes of the ONNX model. If ``forward`` is only a placeholder for an
operator of the engine, the model silently computes something else.

Example::

    class TRT_NMS(torch.autograd.Function):
        @staticmethod
        def forward(ctx, boxes, scores): ...
        @staticmethod
        def symbolic(g, boxes, scores):
            return g.op("TRT::EfficientNMS_TRT", boxes, scores, outputs=4)

Fix: turn the bridge on: ``opbridge.legacy.enable()`` before the export, or ``opbridge run-script script.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from opbridge.errors import described_error
from opbridge.findings.base import Failure, Finding
from opbridge.legacy import switch
from opbridge.legacy.capture_state import ignored_in
from opbridge.legacy.symbolic_method import symbolic_of
from opbridge.torch_graph.sources import source_of_function

CODE = "ignored-symbolic"

ORDER = -1
"""This finding comes before the findings about ``forward``, which is not captured if the bridge is on."""

TURN_ON = (
    "call opbridge.legacy.enable() before the export, or run the old script with `opbridge run-script`; "
    "`opbridge migrate` converts the script."
)


def detect(program: Any) -> Iterator[Finding]:
    """Yield a finding for each Function that was inlined because the bridge was off."""
    for function, place in ignored_in(program).items():
        where = f", used at {place}," if place else ""
        message = f"{_described(function)}{where} is not called, because the modern exporter inlines forward."
        sources = (place,) if place else ()
        yield Finding(CODE, function.__qualname__, message, TURN_ON, severity="warning", sources=sources)


def explain(failure: Failure) -> Finding | None:
    """Explain a failed capture if the ``forward`` of such a Function is among its frames."""
    if switch.is_on():
        return None
    for function in _functions_in(failure):
        return failure.finding(
            CODE,
            function.__qualname__,
            f"The forward of {function.__qualname__}{failure.at} can't be captured "
            f"({described_error(failure.error, 120)}). "
            f"{_described(function)} defines the nodes of the ONNX model, but the modern exporter does not call it.",
            TURN_ON,
        )
    return None


def _described(function: Any) -> str:
    place = source_of_function(inspect.unwrap(function.symbolic))
    return f"{function.__qualname__}.symbolic{f' at {place}' if place else ''}"


def _functions_in(failure: Failure) -> Iterator[Any]:
    import torch

    codes = set()
    for error in failure.chain:
        traceback = error.__traceback__
        while traceback is not None:
            codes.add(traceback.tb_frame.f_code)
            traceback = traceback.tb_next
    waiting: list[Any] = [torch.autograd.Function]
    while waiting:
        function = waiting.pop()
        waiting.extend(function.__subclasses__())
        # A plain read of the attribute would count as a call of the Function.
        forward = inspect.getattr_static(function, "forward")
        forward = inspect.unwrap(getattr(forward, "__func__", forward))
        if symbolic_of(function) is not None and getattr(forward, "__code__", None) in codes:
            yield function
