"""A symbolic function is registered for an operator of the model, and the modern exporter never calls it.

What it means: only the TorchScript exporter reads the registrations of ``torch.onnx.register_custom_op_symbolic``.

Why it is a problem: torch's own mapping is used instead of the user's, or the operator has no mapping.

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
    """Yield a finding for each operator of the program for which the user registered a symbolic function."""
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
    """Return the finding for an operator, given the lines of its symbolic function and of its use."""
    where = f" at {declared}" if declared else ""
    message = (
        f"The symbolic function{where} that is registered for {target} is not called, because the modern exporter "
        f"uses its own mappings{f' (used at {used})' if used else ''}."
    )
    return Finding(CODE, target, message, TURN_ON, severity="warning", sources=(used,) if used else ())
