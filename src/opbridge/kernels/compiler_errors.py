"""Reduce a compiler's output to the lines that matter to the author of a kernel."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["error_lines"]

_LOCATED = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)?\s*(?P<rest>.*)$")
_ERROR = re.compile(r"^(?:fatal )?error: (?P<text>.*)$")
_LINKER = re.compile(
    r"undefined (?:reference|symbol)|multiple definition|duplicate symbol|cannot find -l|not found for"
)
_LINKER_PLACE = re.compile(r"^.*?(?=undefined|multiple|duplicate|cannot|library)")
_SYSTEM = ("/usr/", "/opt/", "/Library/", "/Applications/")
# Clang's message repeats the condition of a static assertion.
_ASSERTED = re.compile(
    r"static(?:_assert| assertion) failed due to requirement "
    r"(?:'::opbridge::.*'|'.*'(?:: | \")(?P<words>opbridge.*?)\"?)"
)
# The phrases with which GCC and clang refer from an error in a header to the user's file.
_ORIGIN = re.compile(r"required from|in expansion of macro|in instantiation of|instantiated from|requested here")


def error_lines(output: str, headers: Path, *, most: int = 10) -> list[str]:
    """The errors in a compiler's or linker's output as ``file:line: text``, each once.

    An error inside opbridge's own or the system's headers is given the place in the author's file that led there.

    Args:
        output: The output of the compiler.
        headers: The folder of opbridge's headers.
        most: The largest number of errors; a last line gives the number of the others.
    """
    lines = output.splitlines()
    errors: dict[str, None] = {}
    for index, line in enumerate(lines):
        located = _LOCATED.match(line)
        error = _ERROR.match(located["rest"]) if located else None
        if located and error:
            file, number = located["file"], located["line"]
            if not _is_authors(file, headers):
                file, number = _origin(lines, index, headers) or (file, number)
            if text := _plain(error["text"]):
                errors[f"{_short(file)}:{number}: {text}"] = None
        elif _LINKER.search(line):
            errors[_LINKER_PLACE.sub("", line, count=1).strip()] = None
    found = list(errors)
    more = len(found) - most
    return found if more <= 0 else [*found[:most], f"and {more} more"]


def _plain(text: str) -> str:
    """The text of an error; for an assertion in opbridge's headers, its message alone, empty if there is none."""
    asserted = _ASSERTED.fullmatch(text)
    if asserted is None:
        return text
    return f"static assertion failed: {asserted['words']}" if asserted["words"] else ""


def _origin(lines: list[str], index: int, headers: Path) -> tuple[str, str] | None:
    """The author's line for the error in line ``index``, from the notes after it or the lines before it."""
    behind = []
    for line in lines[index + 1 :]:
        if (located := _LOCATED.match(line)) and _ERROR.match(located["rest"]):
            break
        behind.append(line)
    before = []
    for line in reversed(lines[:index]):
        if (located := _LOCATED.match(line)) and _ERROR.match(located["rest"]):
            break
        before.append(line)
    for line in [*behind, *before]:
        located = _LOCATED.match(line)
        if located and _ORIGIN.search(located["rest"]) and _is_authors(located["file"], headers):
            return located["file"], located["line"]
    return None


def _is_authors(file: str, headers: Path) -> bool:
    path = Path(file)
    return not path.is_relative_to(headers) and not str(path).startswith(_SYSTEM)


def _short(file: str) -> str:
    """The path, relative to the working directory if the file is inside it."""
    path = Path(file)
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else file
