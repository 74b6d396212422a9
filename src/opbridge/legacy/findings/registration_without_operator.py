"""A symbolic function is registered for a name that never occurs in a captured graph.

What it means: the name is one of TorchScript's own operators (``prim::…``), or torch.export does not use it.

Why it is a problem: the symbolic function is never called, even if the bridge is on.

Example::

    torch.onnx.register_custom_op_symbolic("prim::ConstantChunk", my_chunk, 11)

Fix: register it for the operator that the captured graph has instead; ``opbridge diagnose`` lists the operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opbridge.findings.base import Finding
from opbridge.legacy import switch
from opbridge.legacy.registrations import is_operator, registrations_without_operator

CODE = "registration-without-operator"


def detect(program: Any) -> Iterator[Finding]:
    """Yield a finding for each registration of a name without a torch operator, if the bridge is on."""
    if switch.is_on():
        for registration in registrations_without_operator():
            yield finding(registration.name, registration.source)


def finding(target: str, declared: str) -> Finding:
    """Return the finding for a registered name, given the line of its symbolic function."""
    where = f" at {declared}" if declared else ""
    reason = "which modifies its input" if is_operator(target) else "which is not an operator of torch"
    return Finding(
        CODE,
        target,
        f"The symbolic function{where} is for {target}, {reason}, so no captured graph has it, and it is not used.",
        "register it for the operator that `opbridge diagnose` lists instead, or import the library that defines it.",
        severity="warning",
        sources=(declared,) if declared else (),
    )
