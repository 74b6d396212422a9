"""The place of a converted statement, and the refusals that name it."""

from __future__ import annotations

import dataclasses
from typing import NoReturn

from opbridge.capture.control_flow.exits import PREFIX
from opbridge.capture.control_flow.generators import YIELDED
from opbridge.capture.failures import CaptureFailure
from opbridge.findings import Finding, unconverted_control_flow
from opbridge.findings.base import ASSUMING
from opbridge.torch_graph.sources import SourceLine

__all__ = ["Disagreement", "Function", "Site", "Unconverted", "described", "refuse", "refuse_variable", "unconverted"]


@dataclasses.dataclass(frozen=True)
class Site:
    """A statement of the user's or a library's source.

    Attributes:
        file: The path of the file.
        line: The line number, from 1.
        in_try: Whether it is inside a ``try`` that catches errors.
    """

    file: str
    line: int
    in_try: bool = False

    def __str__(self) -> str:
        """The place as in all messages, relative to the current directory."""
        return str(SourceLine(self.file, self.line))


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of the user's or a library's source.

    Attributes:
        file: The absolute path of the file.
        line: The line of its ``def``, from 1.
    """

    file: str
    line: int


class Unconverted(CaptureFailure):
    """A statement depends on the value of a tensor, and can't be converted.

    Attributes:
        site: The statement.
    """

    def __init__(self, finding: Finding, site: Site) -> None:
        super().__init__(finding, details="")
        self.site = site


class Disagreement(Unconverted):
    """A variable has values on two paths that the graph can't choose from, such as None and a tensor."""


def unconverted(site: Site, reason: str, fix: str) -> Unconverted:
    """The error for a construct that can't be converted.

    Args:
        site: The statement.
        reason: A clause that says why.
        fix: What the user can do, as an instruction.
    """
    line = SourceLine(site.file, site.line)
    if line.is_installed:
        fix = f"{fix.removesuffix('.')}; if you can't change the library, {ASSUMING}."
    return Unconverted(unconverted_control_flow.finding(str(line), reason, fix), site)


def refuse(site: Site, reason: str, fix: str) -> NoReturn:
    """Raise the error for a construct that can't be converted, with the arguments of :func:`unconverted`."""
    raise unconverted(site, reason, fix)


def refuse_variable(site: Site, name: str, what: str) -> NoReturn:
    """Raise the error for a variable of a loop that changes its form.

    Args:
        site: The statement.
        name: The variable.
        what: What it does, as a verb with its objects.
    """
    fix = f"give {described(name)} its final shape and type before the loop: write into a tensor, for example."
    refuse(site, f"{described(name)} {what}", fix)


def described(name: str, kind: str = "") -> str:
    """A variable, for a message: ``'x'``, or ``the list 'x'`` if it is of the kind "the list "."""
    if name.startswith("the "):
        return name  # No variable holds it.
    if name == YIELDED:
        return "the list of what the generator yields"
    return "the value that is returned" if name.startswith(PREFIX) else f"{kind}{name!r}"
