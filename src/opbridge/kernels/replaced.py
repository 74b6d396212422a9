"""Libraries that were replaced after this process loaded them.

The dynamic loader knows a library by its path: for a new file at the path of a loaded library it returns the old one.
After a second export into the same folder, its model would run the kernels of the first.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

__all__ = ["unless_replaced"]

_loaded: dict[str, tuple[int, int]] = {}
"""The device and the inode of each library that this process has loaded, by its path."""


def unless_replaced(library: Path) -> Path:
    """The library, or a copy with another path if this process has loaded another file from its path."""
    try:
        status = library.stat()
    except OSError:
        return library  # The engine says what is wrong.
    file = (status.st_dev, status.st_ino)
    if _loaded.setdefault(str(library.absolute()), file) == file:
        return library
    folder = Path(tempfile.mkdtemp(prefix="opbridge-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copyfile(library, folder / library.name))
