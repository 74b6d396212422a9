"""A mapping to ONNX raised an exception (link 2).

What it means: the operator has a mapping, but the mapping does not support these dtypes, ranks or constants.

Why it is a problem: this use of the operator cannot be expressed in the ONNX model.

Example: a mapping that reads a size from a tensor of unknown rank.

Fix: correct the mapping if it is yours; otherwise override it with ``@opbridge.decomposition`` or
``@opbridge.translation``, which take precedence over torch's and the catalog's mappings.
"""

from __future__ import annotations

from opbridge.errors import described_error
from opbridge.findings.base import Finding

CODE = "mapping-failed"


def finding(
    target: str, error: BaseException, *, provider: str, declared_at: str = "", sources: tuple[str, ...] = ()
) -> Finding:
    """Make the finding from the exception that a mapping raised.

    Args:
        target: The operator.
        error: The exception.
        provider: The owner of the mapping: ``"torch"``, ``"catalog"`` or ``"user"``.
        declared_at: ``file:line`` of the mapping.
        sources: The lines that call the operator.
    """
    whose = {"torch": "torch.onnx's own", "catalog": "opbridge's", "user": "yours"}[provider]
    place = f" ({declared_at})" if declared_at else ""
    fix = (
        f"correct the mapping{place}."
        if provider == "user"
        else f"define your own mapping, which takes precedence: @opbridge.decomposition({target!r}) or "
        f"@opbridge.translation({target!r})."
    )
    where = f" at {sources[0]}" if sources else ""
    message = f"The mapping of {target}{where} to ONNX, {whose}{place}, fails: {described_error(error, 200)}"
    return Finding(CODE, target, message, fix, sources=sources)
