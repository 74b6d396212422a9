"""What may be wrong with a file of any kind: it is missing, is no file, or has another content."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from forked import make_socket

__all__ = ["ANYTHING", "BINARY", "FILE", "Change", "content", "gone", "inside"]

Change = Callable[[Path, random.Random], object]


def gone(path: Path) -> Path:
    """The path, where now nothing is."""
    if path.is_dir():
        path.rename(path.with_name("elsewhere"))
    elif path.exists():
        path.unlink()
    return path


def content(content: bytes | str) -> Change:
    """Give the file this content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda path, chance: gone(path).write_bytes(data)


def _cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def _flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(bytes(content))


def _hole(path: Path, chance: random.Random) -> None:
    """A sparse file, which takes no room on the disk, but all in memory."""
    gone(path).touch()
    os.truncate(path, 1 << 40)


ANYTHING: dict[str, Change] = {
    "missing": lambda path, chance: gone(path),
    "a pipe": lambda path, chance: os.mkfifo(gone(path)),
    "a socket": lambda path, chance: make_socket(gone(path)),
    "a device": lambda path, chance: gone(path).symlink_to("/dev/zero"),
    "unreadable": lambda path, chance: path.chmod(0),
    "a link to itself": lambda path, chance: gone(path).symlink_to(path.name),
    "a link to nothing": lambda path, chance: gone(path).symlink_to("nowhere"),
}
FILE: dict[str, Change] = {
    **ANYTHING,
    "a folder": lambda path, chance: gone(path).mkdir(),
    "empty": content(b""),
    "junk": lambda path, chance: gone(path).write_bytes(chance.randbytes(3000)),
    "zeros": content(bytes(3000)),
    "deep": content("[" * 100_000),
    "a hole of a terabyte": _hole,
}
BINARY: dict[str, Change] = {**FILE, "cut": _cut, **{f"flipped {n}": _flipped for n in range(6)}}


def inside(name: str, change: Change) -> Change:
    """Change the file of this name in a folder."""
    return lambda path, chance: change(path / name, chance)
