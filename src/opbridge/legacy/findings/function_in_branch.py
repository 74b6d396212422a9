"""An autograd.Function with a ``symbolic`` is called inside a branch or a loop body.

What it means: torch captures the functions passed to ``torch.cond``, ``torch.while_loop`` and ``scan`` from their
bytecode, and inlines the ``forward`` of a Function.

Why it is a problem: the Function can't become a node there, so its ``symbolic`` would be ignored silently.

Example::

    torch.cond(x.sum() > 0, lambda x: MyOp.apply(x), lambda x: x, (x,))

Fix: call the Function outside and choose between the results with ``torch.where``; or declare it with
``@opbridge.operator``, which is one node in a branch as well.
"""

from __future__ import annotations

from opbridge.findings.base import Failure, Finding
from opbridge.legacy.capture_state import latest_function

CODE = "function-in-branch"

ORDER = -2
"""This finding comes before the findings about torch.cond."""


def explain(failure: Failure) -> Finding | None:
    """Explain the failure if torch's bytecode reader refused the ``forward`` of the bridge."""
    function = latest_function()
    if function is None or "Dynamo requires the `forward` attribute" not in failure.text:
        return None
    name = function.__qualname__
    return failure.finding(
        CODE,
        name,
        f"{name} is called inside a branch or a loop body{failure.at}, so its symbolic can't be honoured.",
        f"call {name} outside and choose between the results with torch.where, or declare it with "
        "@opbridge.operator, which is one node in a branch as well.",
    )
