"""An autograd.Function with a ``symbolic`` is called inside a branch or a loop body.

What it means: torch captures the functions given to ``torch.cond``, ``torch.while_loop`` and ``scan`` by reading their
bytecode, and reads through a Function into its ``forward``.

Why it is a problem: there the Function can't become a node, and its ``symbolic`` would be dropped without a word.

Example::

    torch.cond(x.sum() > 0, lambda x: MyOp.apply(x), lambda x: x, (x,))

Fix: call the Function outside and choose between the results with ``torch.where``; or declare it with
``@opbridge.operator``, which stays one node in a branch, too.
"""

from __future__ import annotations

from opbridge.findings.base import Failure, Finding
from opbridge.legacy.functions import latest_function

CODE = "function-in-branch"

ORDER = -2
"""Before those that recognise torch.cond by itself."""


def explain(failure: Failure) -> Finding | None:
    """Recognised by what torch's reader of bytecode says of the bridge's ``forward``."""
    function = latest_function()
    if function is None or "Dynamo requires the `forward` attribute" not in failure.text:
        return None
    name = function.__qualname__
    return failure.finding(
        CODE,
        name,
        f"{name} is called inside a branch or a loop body{failure.at}, where its symbolic can't be honoured.",
        f"call {name} outside and choose between the results with torch.where, or declare it with "
        "@opbridge.operator, which stays one node in a branch, too.",
    )
