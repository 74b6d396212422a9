"""The dataclass of a finding, and the facts from which a failed capture is explained.

A finding is one file of this folder. The file has a docstring (what it means, why it is a problem, an example, the fix)
that is its documentation, a ``CODE``, and a function that makes a :class:`Finding`. The name of the function states
what it is made from:

* ``explain(failure: Failure) -> Finding | None`` recognizes a failed capture. An optional ``ORDER`` (default 0)
  determines when it is tried: functions that run the model or match any failure come later. An optional ``ERROR`` is
  the class of the error to raise (default :class:`~opbridge.errors.CaptureError`).
* ``detect(program) -> Iterable[Finding]`` inspects a captured program.
* ``finding(...) -> Finding`` is called by a later stage with the facts that it knows.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from opbridge.records import Record
from opbridge.torch_graph.sources import FixedSize, SourceLine, frames_of_error, innermost, source_of_error

if TYPE_CHECKING:
    from opbridge.torch_graph.declared import Place

__all__ = [
    "ASSUMING",
    "Failure",
    "Finding",
    "Severity",
    "described_place",
    "if_always",
    "library_fix",
    "shortened",
    "source_names",
]

Severity = Literal["error", "warning", "info"]


@dataclasses.dataclass(frozen=True)
class Finding(Record):
    """A problem between a model and an engine, or a fact that the user should know.

    Attributes:
        code: The kind of finding, in kebab case: ``"missing-fake"``.
        target: The subject: a torch operator, an input, a function or a condition.
        message: One line that names the cause and its place.
        fix: What the user can do, as an instruction.
        severity: An ``error`` stops the export unless it is fixed; a ``warning`` may change results; an ``info`` does
            not.
        rung: The rung of the ladder that fixes the problem, or None.
        mended: Whether opbridge fixes the problem automatically.
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


@dataclasses.dataclass(frozen=True)
class Failure:
    """The known facts about a failed capture.

    Attributes:
        error: The exception raised by ``torch.export.export``.
        model: The model that was passed.
        args: The positional example inputs.
        kwargs: The keyword example inputs.
        dynamic_shapes: The argument of ``torch.export.export``.
        fixed_sizes: The dynamic sizes that were specialized to constants during the capture.
    """

    error: BaseException
    model: Any
    args: Any = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None
    fixed_sizes: Sequence[FixedSize] = ()

    @functools.cached_property
    def chain(self) -> tuple[BaseException, ...]:
        """The error, followed by its causes."""
        found: list[BaseException] = []
        current: BaseException | None = self.error
        while current is not None and current not in found:
            found.append(current)
            current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        return tuple(found)

    @functools.cached_property
    def text(self) -> str:
        """The message of the error."""
        return str(self.error)

    def caught(self, name: str) -> BaseException | None:
        """The first error in the chain with a class or base class of this name.

        The classes live in private modules of torch that move between releases; their names are stable.
        """
        return next((e for e in self.chain if any(base.__name__ == name for base in type(e).__mro__)), None)

    @functools.cached_property
    def source(self) -> SourceLine | None:
        """The innermost line in the user's code."""
        return source_of_error(self.error)

    @functools.cached_property
    def place(self) -> SourceLine | None:
        """The innermost line outside torch: in the user's code or in a library."""
        return innermost(frames_of_error(self.error), libraries=True) or self.source

    @property
    def at(self) -> str:
        """``" at model.py:12"``, plus the user's line if the place is in a library; empty if unknown."""
        return described_place(self.place, self.source)

    @functools.cached_property
    def in_fake(self) -> bool:
        """Whether the error was raised in a shape function of the user or of a library."""
        if self.place is None:
            return False
        frames = frames_of_error(self.error)
        below = [index for index, frame in enumerate(frames) if frame.file.endswith("fake_tensor.py")]
        return bool(below) and innermost(frames[below[0] :], libraries=True) is not None

    @functools.cached_property
    def callee(self) -> Any:
        """The function that receives the inputs: ``forward``, or the plain function that was passed as the model."""
        if isinstance(self.model, type):
            return None
        if type(self.model).__module__.startswith("opbridge.") and hasattr(self.model, "function"):
            return self.model.function
        return getattr(self.model, "forward", None)

    @property
    def name(self) -> str:
        """The name of the model's class, or of the function that was passed as the model."""
        forward = getattr(self.callee, "__name__", "forward")
        return type(self.model).__name__ if forward == "forward" else forward

    @property
    def sources(self) -> tuple[str, ...]:
        """The user's line in the form of :attr:`Finding.sources`."""
        return source_names(self.source)

    def inputs(self) -> Iterator[tuple[str, Any]]:
        """The example inputs with the names of the parameters of ``forward``."""
        yield from inspect.signature(self.callee).bind(*self.args, **self.kwargs).arguments.items()

    def places(self) -> Iterator[Place]:
        """The dimensions that ``dynamic_shapes`` declares, also those that the inputs do not have."""
        from opbridge.torch_graph.declared import declared_places

        if self.dynamic_shapes is not None:
            yield from declared_places(dict(self.inputs()), self.dynamic_shapes)

    def finding(self, code: str, target: str, message: str, fix: str) -> Finding:
        """A finding of severity ``error`` at the user's line, with the message on one line."""
        return Finding(code, target, " ".join(message.split()), fix, sources=self.sources)


def described_place(place: SourceLine | None, source: SourceLine | None) -> str:
    """``" at model.py:12"``, plus the user's line if the place is in a library; empty if unknown."""
    if place is None:
        return ""
    if source is None or str(source) == str(place):
        return f" at {place}"
    return f" at {place} (called from {source})"


def source_names(*sources: SourceLine | None) -> tuple[str, ...]:
    """The lines as ``file:line``, without None and without duplicates."""
    return tuple(dict.fromkeys(str(source) for source in sources if source is not None))


def if_always(sizes: Collection[int]) -> str:
    """The condition under which a dimension need not be dynamic; ``sizes`` are those of the example."""
    return f"if its size is always {next(iter(sizes)) if len(sizes) == 1 else 'the same'}"


ASSUMING = "export with --assume, which makes the values and branches of the example constant"
"""What is left to a user who can't change the code."""


def library_fix(target: str, condition: str) -> str:
    """The fix for a line of a library.

    Args:
        target: The import path of its function.
        condition: What a function in its place has to fulfil: ``"without that condition"``.
    """
    return (
        f"this is library code: replace {target} during the capture by a function {condition}, declared with "
        f"@opbridge.rewrite({target!r}); or {ASSUMING}."
    )


def shortened(text: object, limit: int = 100) -> str:
    """``text`` on one line of at most ``limit`` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
