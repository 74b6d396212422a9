"""The files of a kernel: its sources, the files they include, and header-only dependencies."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from opbridge.errors import BuildError

__all__ = ["include_folders", "requirements", "source_files"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_REQUIRES = re.compile(r"//\s*opbridge:\s*requires\s+(.+)")
_HEAD_LINES = 20


def source_files(sources: Sequence[Path], folders: Sequence[Path]) -> tuple[Path, ...]:
    """The sources and all files they include from their own folders or ``folders``; each once, in order.

    Args:
        sources: The files to start from.
        folders: The folders to search for included files, without system folders.
    """
    found: dict[Path, None] = {}
    waiting = [source.absolute() for source in reversed(sources)]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = None
        text = file.read_text(encoding="utf-8", errors="replace")
        included = []
        for quoted, angled in _INCLUDE.findall(text):
            places = [file.parent, *folders] if quoted else folders
            paths = [Path(place) / (quoted or angled) for place in places]
            included += [path.absolute() for path in paths if path.is_file()][:1]
        waiting += reversed(included)
    return tuple(found)


def requirements(source: Path) -> tuple[str, ...]:
    """The header-only dependencies that a source names in its first lines: ``// opbridge: requires eigen``."""
    lines = source.read_text(encoding="utf-8", errors="replace").splitlines()[:_HEAD_LINES]
    named = [match.group(1) for line in lines if (match := _REQUIRES.search(line))]
    return tuple(word.lower() for names in named for word in re.split(r"[,\s]+", names) if word)


def include_folders(sources: Sequence[Path]) -> tuple[Path, ...]:
    """The folders of the header-only dependencies that the sources name.

    Raises:
        BuildError: A dependency is unknown or not installed.
    """
    folders: dict[Path, None] = {}
    for source in sources:
        for name in requirements(source):
            if name not in _DEPENDENCIES:
                raise BuildError(
                    f"{source.name} requires {name!r}, which opbridge does not know how to find.",
                    fix=f"use one of: {', '.join(_DEPENDENCIES)}; or put the headers next to {source.name}.",
                )
            folders[_find(source, name)] = None
    return tuple(folders)


def _find(source: Path, name: str) -> Path:
    header, places, fix = _DEPENDENCIES[name]
    for prefix in _prefixes():
        for place in places:
            if (prefix / place / header).is_file():
                return prefix / place
    raise BuildError(f"{source.name} requires {name}, which is not installed.", fix=fix)


def _prefixes() -> list[Path]:
    site = Path(sysconfig.get_paths()["purelib"])
    return [site / "cmeel.prefix", Path(sys.prefix), Path("/usr"), Path("/usr/local"), Path("/opt/homebrew")]


# A header that identifies the folder, the folders under a prefix to search, and the installation command.
_DEPENDENCIES = {
    "eigen": (
        "Eigen/Core",
        ("include/eigen3", "Library/include/eigen3"),
        "install it: 'pip install cmeel-eigen', 'apt install libeigen3-dev' or 'conda install -c conda-forge eigen'.",
    ),
}
