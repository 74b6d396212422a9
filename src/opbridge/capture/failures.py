"""Why torch.export could not capture a model, in one line with the user's own source line."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from opbridge import findings
from opbridge.errors import CaptureError, OpbridgeError
from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.sources import FixedSize

__all__ = ["CaptureFailure", "capture_finding", "explain_capture_failure"]


class CaptureFailure(CaptureError):
    """A :class:`~opbridge.errors.CaptureError` that keeps the finding it was made from.

    Attributes:
        finding: Code, culprit, fix and sources as data.
    """

    def __init__(self, finding: Finding, *, details: str) -> None:
        super().__init__(finding.message, fix=finding.fix, details=details)
        self.finding = finding

    def to_dict(self) -> dict[str, object]:
        """As of any error, with the finding's ``code`` and ``sources``."""
        found = {"code": self.finding.code, "sources": list(self.finding.sources)}
        return {**super().to_dict(), "error": CaptureError.__name__, **found}


def capture_finding(
    error: BaseException,
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    fixed_sizes: Sequence[FixedSize] = (),
) -> Finding:
    """The finding that fits what ``torch.export.export`` raised.

    The model may be run once on its example inputs, to see whether it fails in PyTorch too.

    Args:
        error: The exception.
        model: The model that was to be captured, and its example inputs.
        args: Positional ones.
        kwargs: Keyword ones.
        dynamic_shapes: As passed to ``torch.export.export``.
        fixed_sizes: The dynamic sizes that became numbers on the way.
    """
    return findings.explain(Failure(error, model, args, dict(kwargs or {}), dynamic_shapes, fixed_sizes))


def explain_capture_failure(
    error: BaseException,
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    fixed_sizes: Sequence[FixedSize] = (),
) -> OpbridgeError:
    """The error to raise for what ``torch.export.export`` raised; arguments as of :func:`capture_finding`.

    Returns:
        A :class:`CaptureFailure`, or an :class:`~opbridge.errors.InputError` where the arguments are at fault. Its
        ``details`` have the whole traceback and the graph as far as it was captured. An error that is an
        :class:`~opbridge.errors.OpbridgeError` already comes back as it is.
    """
    if isinstance(error, OpbridgeError):
        return error
    finding = capture_finding(error, model, args, kwargs, dynamic_shapes=dynamic_shapes, fixed_sizes=fixed_sizes)
    details = _details(error)
    kind = getattr(findings.by_code(finding.code), "ERROR", CaptureError)
    if kind is CaptureError:
        return CaptureFailure(finding, details=details)
    raised: OpbridgeError = kind(finding.message, fix=finding.fix, details=details)
    return raised


def _details(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    graph = getattr(error, "partial_fx_graph", None)
    return f"{text}\nThe graph as far as it was captured:\n{graph}\n" if graph else text
