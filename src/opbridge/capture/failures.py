"""Explains in one line why torch.export could not capture a model, with the user's source line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opbridge import findings
from opbridge.errors import CaptureError, OpbridgeError
from opbridge.findings import dynamic_dimension
from opbridge.findings.base import Failure, Finding
from opbridge.torch_graph.cached_functions import hashed_sources
from opbridge.torch_graph.sources import FixedSize, SourceLine, innermost

__all__ = ["CaptureFailure", "capture_finding", "explain_capture_failure"]


class CaptureFailure(CaptureError):
    """A :class:`~opbridge.errors.CaptureError` with the finding that it was made from.

    Attributes:
        finding: The finding, with its code, cause, fix and sources.
        lines: The lines outside torch that fixed or restricted a dynamic size.
        others: Further lines that made a number that is computed from sizes constant.
        fixes_sizes: Whether a dynamic size was made constant.
        axes: The axes that can't be dynamic as declared, in torch's notation: ``L['x'].size()[0]``.
        other_example: Example inputs with other sizes that may be captured for all sizes, if there are any.
    """

    def __init__(
        self,
        finding: Finding,
        *,
        details: str,
        lines: Sequence[SourceLine] = (),
        others: Sequence[SourceLine] = (),
        fixes_sizes: bool = False,
        axes: Sequence[str] = (),
        other_example: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(finding.message, fix=finding.fix, details=details)
        self.finding = finding
        self.lines = tuple(lines)
        self.others = tuple(others)
        self.fixes_sizes = fixes_sizes
        self.axes = tuple(axes)
        self.other_example = other_example

    def to_dict(self) -> dict[str, object]:
        """The error as JSON data, with the finding's ``code`` and ``sources``."""
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
    """The finding for an exception raised by ``torch.export.export``.

    The model may be run once on its example inputs, to check whether it also fails in PyTorch.

    Args:
        error: The exception.
        model: The model that could not be captured.
        args: Its positional example inputs.
        kwargs: Its example inputs by keyword.
        dynamic_shapes: The dynamic dimensions, as passed to ``torch.export.export``.
        fixed_sizes: The dynamic sizes that were specialized to numbers before the exception.
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
    """The error to raise for an exception of ``torch.export.export``, with the arguments of :func:`capture_finding`.

    Returns:
        A :class:`CaptureFailure`, or an :class:`~opbridge.errors.InputError` if the arguments are wrong. Its
        ``details`` have the whole traceback and the partly captured graph. An
        :class:`~opbridge.errors.OpbridgeError` is returned unchanged, also if the model caught it and raised another.
    """
    raised_before = next((one for one in _chain(error) if isinstance(one, OpbridgeError)), None)
    if raised_before is not None:
        return raised_before
    finding = capture_finding(error, model, args, kwargs, dynamic_shapes=dynamic_shapes, fixed_sizes=fixed_sizes)
    details = _details(error)
    kind = getattr(findings.by_code(finding.code), "ERROR", CaptureError)
    if kind is CaptureError:
        lines = [line for size in fixed_sizes if (line := innermost(size.frames, libraries=True)) is not None]
        axes = (
            dynamic_dimension.axes_in(str(error)) if finding.code == dynamic_dimension.CODE else hashed_sources(error)
        )
        return CaptureFailure(finding, details=details, lines=lines, fixes_sizes=bool(fixed_sizes), axes=axes)
    raised: OpbridgeError = kind(finding.message, fix=finding.fix, details=details)
    return raised


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was raised from."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not one for one in seen):
        yield current
        seen.append(current)
        current = current.__cause__


def _details(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    graph = getattr(error, "partial_fx_graph", None)
    return f"{text}\nThe graph as far as it was captured:\n{graph}\n" if graph else text
