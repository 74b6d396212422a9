"""Runs the transformations over one file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.errors import InputError, first_line

if TYPE_CHECKING:
    from opbridge.legacy.migrate.script import Edit

__all__ = ["Change", "Migration", "migrate", "write"]


@dataclasses.dataclass(frozen=True)
class Change:
    """One old declaration or argument.

    Attributes:
        line: Where it stands in the old file, counted from 1.
        name: The class, function, operator or argument.
        detail: What took its place, or why it stays as it is.
    """

    line: int
    name: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Migration:
    """A script in today's form.

    Attributes:
        file: The script's name.
        text: The new source; the old one where nothing was converted.
        converted: What changed.
        left: What only a human can convert, and why.
    """

    file: str
    text: str
    converted: tuple[Change, ...]
    left: tuple[Change, ...]

    @property
    def way_out(self) -> str:
        """How the script runs with what is left; empty if nothing is."""
        if not self.left:
            return ""
        return (
            f"What stays works with the bridge on: opbridge run-script {self.file}, or opbridge.legacy.enable() at the "
            "script's beginning."
        )

    def to_dict(self) -> dict[str, Any]:
        """The migration as JSON data."""
        return {
            "file": self.file,
            "text": self.text,
            "converted": [dataclasses.asdict(change) for change in self.converted],
            "left": [dataclasses.asdict(change) for change in self.left],
            "way_out": self.way_out,
        }


def migrate(file: str | Path) -> Migration:
    """Convert the old declarations of a Python file; nothing is written.

    Symbolic functions of autograd.Functions become :func:`opbridge.operator` with :func:`opbridge.translation`,
    registered ones :func:`opbridge.translation`, and arguments of ``torch.onnx.export`` their successors.

    Raises:
        InputError: The file can't be read, is no Python, or libcst is missing.
    """
    _require_libcst()
    import libcst as cst

    from opbridge.legacy.migrate import export_arguments, functions, imports, leftovers, registrations
    from opbridge.legacy.migrate.script import Left, Script

    try:
        with Path(file).open(encoding="utf-8", newline="") as opened:  # Lines end as they did.
            source = opened.read()
        module = cst.parse_module(source)
    except OSError as error:
        raise InputError(f"migrate: {file} can't be read: {error.strerror}.", fix="check the path.") from error
    except (cst.ParserSyntaxError, UnicodeDecodeError) as error:
        raise InputError(
            f"migrate: {file} is not valid Python: {first_line(error)}", fix="correct the file first."
        ) from error
    script = Script(module, Path(file).stem)
    edits: list[Edit] = []
    left: list[Left] = []
    for transformation in (functions, registrations, export_arguments, leftovers):
        for found in transformation.find(script):
            if isinstance(found, Left):
                left.append(found)
            else:
                edits.append(found)
    text = imports.finish(script, _applied(module, edits)).code if edits else source
    converted = [Change(edit.line, edit.name, edit.detail) for edit in edits if edit.detail]
    stays = [Change(item.line, item.name, item.detail) for item in left]
    return Migration(str(file), text, _sorted(converted), _sorted(stays))


def _sorted(changes: list[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: change.line))


def _require_libcst() -> None:
    try:
        import libcst  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            "migrate needs the Python package libcst, which is not installed here.",
            fix='pip install "opbridge[migrate]"',
        ) from error


def _applied(module: Any, edits: list[Edit]) -> Any:
    from opbridge.legacy.migrate.script import applied

    return applied(module, edits)


def write(migration: Migration) -> None:
    """Replace the file by its migrated text, at once or not at all."""
    path = Path(migration.file)
    temporary = path.with_name(f".{path.name}.migrated")
    try:
        temporary.write_text(migration.text, encoding="utf-8", newline="")
        temporary.chmod(path.stat().st_mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(
            f"migrate: {path} can't be written: {error.strerror}.", fix="check its permissions."
        ) from error
