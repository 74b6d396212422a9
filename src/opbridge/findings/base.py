"""The common form of every finding, and the facts that a failed capture is judged by.

A finding is one file of this folder. It has a docstring (what it means, why it is a problem, an example, the fix), from
which the documentation is made, a ``CODE``, and a function that makes a :class:`Finding` from facts. Its name says what
the facts are, so that no list has to be edited:

* ``explain(failure: Failure) -> Finding | None`` recognises a failed capture. An optional ``ORDER`` (0 if absent) says
  when it is asked: those that need to run the model, or that fit any failure, come later. An optional ``ERROR`` is the
  class of the error raised for it (:class:`~opbridge.errors.CaptureError` if absent).
* ``detect(program) -> Iterable[Finding]`` looks for it in a captured program.
* ``finding(...) -> Finding`` makes it from the facts that a later stage knows.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from opbridge.torch_graph.sources import FixedSize, SourceLine, frames_of_error, innermost, source_of_error

__all__ = ["Failure", "Finding", "Severity", "described_place", "shortened", "source_names"]

Severity = Literal["error", "warning", "info"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that stands between a model and an engine, or that the user should know.

    Attributes:
        code: Which finding, in kebab case: ``"missing-fake"``.
        target: What it is about: a torch operator, an input, a function, a condition.
        message: One line that names the culprit and its place.
        fix: What to do about it, as an instruction.
        severity: An ``error`` stops the export unless it is mended; a ``warning`` may change
            results; an ``info`` does not.
        rung: The rung of the ladder that mends it, or None.
        mended: Whether opbridge mends it without the user's help.
        sources: ``file:line`` of each place in the user's source.
    """

    code: str
    target: str
    message: str
    fix: str
    severity: Severity = "error"
    rung: str | None = None
    mended: bool = False
    sources: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The finding as JSON data."""
        return {**dataclasses.asdict(self), "sources": list(self.sources)}


@dataclasses.dataclass(frozen=True)
class Failure:
    """What is known of a capture that failed.

    Attributes:
        error: What ``torch.export.export`` raised.
        model: The model that was passed.
        args: Its positional example inputs.
        kwargs: Its keyword example inputs.
        dynamic_shapes: As passed to ``torch.export.export``.
        fixed_sizes: The dynamic sizes that became numbers on the way.
    """

    error: BaseException
    model: Any
    args: Any = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None
    fixed_sizes: Sequence[FixedSize] = ()

    @functools.cached_property
    def chain(self) -> tuple[BaseException, ...]:
        """The error, then what caused it."""
        found: list[BaseException] = []
        current: BaseException | None = self.error
        while current is not None and current not in found:
            found.append(current)
            current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        return tuple(found)

    @functools.cached_property
    def text(self) -> str:
        """What the error says."""
        return str(self.error)

    def caught(self, name: str) -> BaseException | None:
        """The error of the chain whose class, or a base of it, has this name.

        The classes live in private modules of torch that move between releases, their names don't.
        """
        return next((e for e in self.chain if any(base.__name__ == name for base in type(e).__mro__)), None)

    @functools.cached_property
    def source(self) -> SourceLine | None:
        """The user's own line."""
        return source_of_error(self.error)

    @functools.cached_property
    def place(self) -> SourceLine | None:
        """The line outside torch that called what failed: the user's, or that of a library that he uses."""
        return innermost(frames_of_error(self.error), libraries=True) or self.source

    @property
    def at(self) -> str:
        """``" at model.py:12"``, with the user's line added where the place is a library's; empty if unknown."""
        return described_place(self.place, self.source)

    @functools.cached_property
    def in_fake(self) -> bool:
        """Whether the error comes from a shape function written by the user or a library."""
        if self.place is None:
            return False
        frames = frames_of_error(self.error)
        below = [index for index, frame in enumerate(frames) if frame.file.endswith("fake_tensor.py")]
        return bool(below) and innermost(frames[below[0] :], libraries=True) is not None

    @functools.cached_property
    def callee(self) -> Any:
        """The function whose parameters the inputs are: ``forward``, or the plain function that was passed as model."""
        if isinstance(self.model, type):
            return None
        if type(self.model).__module__.startswith("opbridge.") and hasattr(self.model, "function"):
            return self.model.function
        return getattr(self.model, "forward", None)

    @property
    def name(self) -> str:
        """The model's class, or the function that was passed as model."""
        forward = getattr(self.callee, "__name__", "forward")
        return type(self.model).__name__ if forward == "forward" else forward

    @property
    def sources(self) -> tuple[str, ...]:
        """The user's line as a finding carries it."""
        return source_names(self.source)

    def inputs(self) -> Iterator[tuple[str, Any]]:
        """The example inputs by the names of ``forward``'s parameters."""
        yield from inspect.signature(self.callee).bind(*self.args, **self.kwargs).arguments.items()

    def finding(self, code: str, target: str, message: str, fix: str) -> Finding:
        """A finding of severity ``error`` at the user's line, its message in one line."""
        return Finding(code, target, " ".join(message.split()), fix, sources=self.sources)


def described_place(place: SourceLine | None, source: SourceLine | None) -> str:
    """``" at model.py:12"``, with the user's line added where the place is a library's; empty if unknown."""
    if place is None:
        return ""
    if source is None or str(source) == str(place):
        return f" at {place}"
    return f" at {place} (called from {source})"


def source_names(*sources: SourceLine | None) -> tuple[str, ...]:
    """Each line as ``file:line``, without those that are None and without repetition."""
    return tuple(dict.fromkeys(str(source) for source in sources if source is not None))


def shortened(text: object, limit: int = 100) -> str:
    """``text`` on one line of at most ``limit`` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
