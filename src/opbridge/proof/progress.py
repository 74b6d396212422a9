"""The progress of a verb: a line of text, which may contain counts."""

from __future__ import annotations

__all__ = ["Count"]


class Count(str):
    """A line such as "verifying: 3 of 400", which can be shown as a progress bar.

    Attributes:
        what: A description without the counts.
        done: The number of steps that are done.
        total: The number of all steps.
        doing: The current step; empty if it is not named.
    """

    __slots__ = ("doing", "done", "total", "what")

    what: str
    done: int
    total: int
    doing: str

    def __new__(cls, what: str, done: int, total: int, doing: str = "") -> Count:
        """The line for ``what``; ``doing`` names the current step."""
        line = super().__new__(cls, f"{what}: {done} of {total}{f', {doing}' if doing else ''}")
        line.what, line.done, line.total, line.doing = what, done, total, doing
        return line
