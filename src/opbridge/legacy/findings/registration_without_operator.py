"""A symbolic function is registered for a name that no captured graph has.

What it means: TorchScript's graph has operators of its own (``prim::…``), and names that torch.export does not use.

Why it is a problem: the symbolic function is never called, also with the bridge on.

Example::

    torch.onnx.register_custom_op_symbolic("prim::ConstantChunk", my_chunk, 11)

Fix: register it for the operator that the captured graph has in that place; ``opbridge diagnose`` lists those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opbridge.findings.base import Finding
from opbridge.legacy import switch
from opbridge.legacy.registrations import registrations_without_operator

CODE = "registration-without-operator"


def detect(program: Any) -> Iterator[Finding]:
    """Recognised, while the bridge is on, by registrations of a name that torch has no operator for."""
    if switch.is_on():
        for registration in registrations_without_operator():
            yield finding(registration.name, registration.source)


def finding(target: str, declared: str) -> Finding:
    """Made of the name that a symbolic function is registered for, and the function's place."""
    where = f" at {declared}" if declared else ""
    return Finding(
        CODE,
        target,
        f"The symbolic function{where} is registered for {target}, which no captured graph has, and is never called.",
        "register it for the operator that `opbridge diagnose` lists in its place, or import the library that has it.",
        severity="warning",
        sources=(declared,) if declared else (),
    )
