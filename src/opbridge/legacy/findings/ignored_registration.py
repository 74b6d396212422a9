"""A symbolic function is registered for an operator of the model, and the modern exporter never calls it.

What it means: ``torch.onnx.register_custom_op_symbolic`` feeds the TorchScript exporter alone.

Why it is a problem: the operator gets torch's own mapping instead of the user's, or has none.

Example::

    torch.onnx.register_custom_op_symbolic("aten::asinh", my_asinh, 11)

Fix: turn the bridge on: ``opbridge.legacy.enable()`` before the export, or ``opbridge run-script script.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opbridge.findings.base import Finding
from opbridge.legacy import switch
from opbridge.legacy.findings.ignored_symbolic import TURN_ON
from opbridge.legacy.registrations import registrations
from opbridge.torch_graph.sources import source_of_node
from opbridge.torch_graph.targets import calls_in, target_key

CODE = "ignored-registration"


def detect(program: Any) -> Iterator[Finding]:
    """Recognised by the operators of the program that have a registration of the user's."""
    if switch.is_on():
        return
    nodes: dict[str, Any] = {}
    for node in calls_in(program):
        nodes.setdefault(str(target_key(node.target)).partition(".")[0], node)
    for registration in registrations():
        used = nodes.get(registration.name)
        if used is not None:
            place = source_of_node(used)
            yield finding(registration.name, registration.source, str(place) if place else "")


def finding(target: str, declared: str, used: str) -> Finding:
    """Made of an operator, the place of its symbolic function and the place that uses it."""
    where = f" at {declared}" if declared else ""
    message = (
        f"The symbolic function{where} that is registered for {target} is not called: the modern exporter has "
        f"mappings of its own{f' (used at {used})' if used else ''}."
    )
    return Finding(CODE, target, message, TURN_ON, severity="warning", sources=(used,) if used else ())
