"""What a verb says while it works: a line of text, which may know how far it is."""

from __future__ import annotations

__all__ = ["Count"]


class Count(str):
    """A line such as "verifying: 3 of 400", for whoever shows it as a bar.

    Attributes:
        what: What is being done, without the numbers.
        done: How much of it is done.
        total: How much there is.
    """

    __slots__ = ("done", "total", "what")

    what: str
    done: int
    total: int

    def __new__(cls, what: str, done: int, total: int, doing: str = "") -> Count:
        """The line for ``what``; ``doing`` says which one is being done."""
        line = super().__new__(cls, f"{what}: {done} of {total}{f', {doing}' if doing else ''}")
        line.what, line.done, line.total = what, done, total
        return line
