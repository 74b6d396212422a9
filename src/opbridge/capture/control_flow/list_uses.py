"""The refusal of code that was not converted and uses a list whose length is known only at run time."""

from __future__ import annotations

from opbridge.capture.failures import CaptureFailure
from opbridge.findings import unconverted_control_flow
from opbridge.torch_graph.sources import SourceLine, frames_of_stack, innermost

__all__ = ["ListUsed", "refuse_uneven", "refuse_use"]


class ListUsed(CaptureFailure):
    """Python code that was not converted uses a list whose length is known only at run time.

    Attributes:
        place: A line of this code; None for the line that raises the error.
    """

    place: SourceLine | None = None


def refuse_use(use: str) -> ListUsed:
    """The error for a use of a list whose length is known only at run time.

    Args:
        use: What the list is used by.
    """
    return ListUsed(unconverted_control_flow.used_list(use, _line()), details="")


def refuse_uneven() -> ListUsed:
    """The error for a use of a list of tensors of different sizes."""
    return ListUsed(unconverted_control_flow.uneven_list(_line()), details="")


def _line() -> str:
    return str(innermost(frames_of_stack(), libraries=True) or "")
