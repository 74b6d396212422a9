"""A mapping to ONNX raised an exception (link 2).

What it means: there is a rule for the operator, but it does not take these dtypes, ranks or constants.

Why it is a problem: the operator can't appear in the ONNX model as it is used here.

Example: a mapping that reads a size from a tensor of unknown rank.

Fix: correct the mapping if it is one's own; else override it with ``@opbridge.decomposition`` or
``@opbridge.translation``, which win over torch's and the catalog's.
"""

from __future__ import annotations

from opbridge.errors import described_error
from opbridge.findings.base import Finding

CODE = "mapping-failed"


def finding(
    target: str, error: BaseException, *, provider: str, declared_at: str = "", sources: tuple[str, ...] = ()
) -> Finding:
    """Made of the exception that a mapping raised.

    Args:
        target: The operator.
        error: The exception.
        provider: Whose mapping it is: ``"torch"``, ``"catalog"`` or ``"user"``.
        declared_at: ``file:line`` of the mapping.
        sources: Where the model calls the operator.
    """
    whose = {"torch": "torch.onnx's own", "catalog": "opbridge's", "user": "yours"}[provider]
    place = f" ({declared_at})" if declared_at else ""
    fix = (
        f"correct the mapping{place}."
        if provider == "user"
        else f"give a mapping of your own, which wins: @opbridge.decomposition({target!r}) or "
        f"@opbridge.translation({target!r})."
    )
    where = f" at {sources[0]}" if sources else ""
    message = f"The mapping of {target}{where} to ONNX, {whose}{place}, fails: {described_error(error, 200)}"
    return Finding(CODE, target, message, fix, sources=sources)
