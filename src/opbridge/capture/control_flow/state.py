"""The variables that a converted statement may change, and what converted code has noted."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opbridge.capture.control_flow.site import Site
from opbridge.capture.control_flow.values import UNDEFINED
from opbridge.torch_graph.numpy_functions import without_array

__all__ = ["Notes", "State", "note_check", "note_operator", "notes_unless_raised", "noting", "read"]


@dataclasses.dataclass(frozen=True)
class State:
    """The variables of a converted statement.

    Attributes:
        names: The variables that the statement may assign, as in the source: ``"x"``, ``"self.h"``.
        get: Returns their values; ``UNDEFINED`` for one that is not assigned.
        set: Assigns them.
        touched: The names of variables whose lists, dicts or sets the statement may change.
        held: Returns the values of ``touched``.
        inner: The variables of ``names`` that only the statement itself reads.
        temporary: Those of ``inner`` that each iteration of a loop assigns before it reads them.
        dead: The variables of ``names`` that nothing reads after the statement; known for branches only.
    """

    names: Sequence[str]
    get: Callable[[], Sequence[Any]]
    set: Callable[[Sequence[Any]], None]
    touched: Sequence[str] = ()
    held: Callable[[], Sequence[Any]] = tuple
    inner: frozenset[str] = frozenset()
    temporary: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()


def read(variable: Callable[[], Any]) -> Any:
    """The value of a variable, or ``UNDEFINED``; an array of the capture as a tensor, which a graph can compute."""
    try:
        return without_array(variable())
    except (NameError, AttributeError):
        return UNDEFINED


@dataclasses.dataclass
class Notes:
    """What converted code became.

    Attributes:
        operators: The ONNX operators with the lines that they come from: ``("If", "model.py:12")``.
        checks: The conditions that are not checked in the program: their line, and the statement.
    """

    operators: dict[tuple[str, str], None] = dataclasses.field(default_factory=dict)
    checks: dict[tuple[str, str], None] = dataclasses.field(default_factory=dict)


_notes: contextvars.ContextVar[Notes | None] = contextvars.ContextVar("notes", default=None)


@contextlib.contextmanager
def noting() -> Iterator[Notes]:
    """Collect what converted code becomes inside the block."""
    notes = Notes()
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


@contextlib.contextmanager
def notes_unless_raised(error: type[Exception]) -> Iterator[None]:
    """Forget what was noted inside the block if it raises this error, because the code will be traced again."""
    notes = _notes.get()
    before = (dict(notes.operators), dict(notes.checks)) if notes is not None else None
    try:
        yield
    except error:
        if notes is not None and before is not None:
            notes.operators, notes.checks = before
        raise


def note_operator(operator: str, site: Site) -> None:
    """Note that a statement became an ONNX operator."""
    notes = _notes.get()
    if notes is not None:
        notes.operators[operator, str(site)] = None


def note_check(site: Site, statement: str) -> None:
    """Note that a condition is left out of the program."""
    notes = _notes.get()
    if notes is not None:
        notes.checks[str(site), statement] = None
