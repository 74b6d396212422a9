"""Applies all transformations to one file."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge.atomic import replace_file
from opbridge.errors import InputError, first_line
from opbridge.records import Record
from opbridge.user_key import read_regular

if TYPE_CHECKING:
    from opbridge.legacy.migrate.script import Edit, Left

__all__ = ["Change", "Migration", "migrate", "write"]


@dataclasses.dataclass(frozen=True)
class Change(Record):
    """One old declaration or argument.

    Attributes:
        line: Its line in the old file, counted from 1.
        name: The name of the class, function, operator or argument.
        detail: Its replacement, or the reason why it is left unchanged.
    """

    line: int
    name: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Migration(Record):
    """A script converted to the current API.

    Attributes:
        file: The path of the script.
        text: The new source; the old source if nothing was converted.
        converted: The declarations and arguments that were converted.
        left: The declarations and arguments that must be converted by hand.
        not_run: Those that are rewritten in ``text``, but that no compared model depends on.
        reason: Why they were not run; empty if there are none.
        problem: How the new source fails, or what it exports that the script does not; empty if nothing is known.
    """

    json_keys = ("file", "text", "converted", "left", "not_run", "reason", "problem", "way_out")

    file: str
    text: str
    converted: tuple[Change, ...]
    left: tuple[Change, ...]
    not_run: tuple[Change, ...] = ()
    reason: str = ""
    problem: str = ""

    @property
    def way_out(self) -> str:
        """How to run the script with the parts that are left; empty if everything was converted."""
        if not self.left:
            return ""
        return (
            f"The parts left unchanged work with the bridge on: use opbridge run-script {self.file}, or call "
            "opbridge.legacy.enable() at the beginning of the script."
        )


def migrate(file: str | Path) -> Migration:
    """Convert the old declarations of a Python file; nothing is written.

    An autograd.Function with a ``symbolic`` becomes an :func:`opbridge.operator` with an :func:`opbridge.translation`.
    A registered symbolic function becomes an :func:`opbridge.translation`. Old arguments of ``torch.onnx.export`` are
    replaced by their successors.

    Raises:
        InputError: The file can't be read or is not valid Python, or libcst is not installed.
    """
    _require_libcst()
    import libcst as cst

    from opbridge.legacy.migrate import export_arguments, functions, imports, leftovers, registrations, scripted
    from opbridge.legacy.migrate.script import Left, Script, applied

    try:
        source = read_regular(Path(file)).decode()  # It keeps the line endings.
        ast.parse(source)  # libcst's parser has no limit for brackets in brackets, and would end the process.
        module = cst.parse_module(source)
    except OSError as error:
        raise InputError(f"migrate: {file} can't be read: {error.strerror or error}.", fix="check the path.") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError, cst.ParserSyntaxError) as error:
        raise InputError(
            f"migrate: {file} is not valid Python: {first_line(error)}", fix="correct the file first."
        ) from error
    script = Script(module, Path(file).stem)
    edits: list[Edit] = []
    left: list[Left] = []
    for transformation in (functions, registrations, scripted, export_arguments, leftovers):
        for found in transformation.find(script):
            if isinstance(found, Left):
                left.append(found)
            else:
                edits.append(found)
    text = imports.finish(script, applied(module, edits)).code if edits else source
    return Migration(str(file), text, _changes(edits), _changes(left))


def _changes(found: Sequence[Edit | Left]) -> tuple[Change, ...]:
    """Return the entries of the report, by line; an edit without a detail only follows from another one."""
    changes = [Change(item.line, item.name, item.detail) for item in found if item.detail]
    return tuple(sorted(changes, key=lambda change: change.line))


def _require_libcst() -> None:
    try:
        import libcst  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            "migrate needs the Python package libcst, which is not installed here.",
            fix='pip install "libcst>=1.5.0"',
        ) from error


def write(migration: Migration) -> None:
    """Replace the file by its migrated text atomically; the file keeps its mode.

    Raises:
        InputError: The file can't be written.
    """
    path = Path(migration.file)
    try:
        mode = path.stat().st_mode
        replace_file(path, migration.text.encode())
        path.chmod(mode)
    except OSError as error:
        raise InputError(
            f"migrate: {path} can't be written: {error.strerror}.", fix="check its permissions."
        ) from error
