"""What a command line runs in that is not as it should be: limits, closed files, unusable folders, compilers."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["FRESH", "SURROUNDINGS", "become_ordinary"]


_CAPABILITIES_3 = 0x20080522  # The version of the call's data, in linux/capability.h.
_SECURE_BITS, _NO_ROOT = 28, 3  # prctl.h; securebits.h: set and locked


def become_ordinary() -> None:
    """Give up what root may do beyond other users on Linux, such as reading files without the permission.

    Programs that this process starts don't get it back.
    """
    if sys.platform == "linux" and os.geteuid() == 0:
        library = ctypes.CDLL(None, use_errno=True)
        if library.prctl(_SECURE_BITS, _NO_ROOT, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
        if library.capset(header, (ctypes.c_uint32 * 6)()) != 0:
            raise OSError(ctypes.get_errno(), "capset")


def _limit(name: str, value: int) -> Callable[[Path], None]:
    return lambda folder: resource.setrlimit(getattr(resource, name), (value, value))


def _redirected(descriptor: int, path: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        opened = os.open(path, os.O_RDWR if path == "/dev/full" else os.O_RDONLY)
        os.dup2(opened, descriptor)
        os.close(opened)

    return change


def _broken_pipe(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    os.close(writer)


def _closed(*descriptors: int) -> Callable[[Path], None]:
    return lambda folder: [os.close(descriptor) for descriptor in descriptors] and None


def _set(**variables: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value.replace("{folder}", str(folder))

    return change


def _full_temporary(folder: Path) -> None:
    """Nothing can be written below the folder of temporary files."""
    place = os.environ["TMPDIR"]

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "os.mkdir" or (event == "open" and isinstance(arguments[2], int) and arguments[2] & 3)
        if writes and os.fsdecode(str(arguments[0])).startswith(place):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))

    sys.addaudithook(refuse)


def _unwritable_home(folder: Path) -> None:
    _set(HOME="{folder}/swept", XDG_DATA_HOME=None, XDG_CACHE_HOME=None)(folder)
    os.chmod(folder / "swept", 0o500)


_STRANGE = "{folder}/../\x1b[31m é %s\n'\"$(touch ran)`touch ran`;|"


FRESH = "in a new process: "
"""Surroundings that begin with this start Python anew, because they concern how it starts."""

SURROUNDINGS: dict[str, Callable[[Path], None]] = {
    "ordinary": lambda folder: None,
    "TMPDIR is full": _full_temporary,
    "TMPDIR does not exist": _set(TMPDIR="{folder}/nowhere"),
    "TMPDIR is a file": _set(TMPDIR="{folder}/m.onnx"),
    "TMPDIR is read-only": lambda folder: os.chmod(os.environ["TMPDIR"], 0o500),
    "the folder is read-only": lambda folder: os.chmod(folder, 0o500),
    "the home is read-only": _unwritable_home,
    "no file may be written": _limit("RLIMIT_FSIZE", 0),
    "files up to 4 kB": _limit("RLIMIT_FSIZE", 4096),
    "16 open files": _limit("RLIMIT_NOFILE", 16),
    "stdout is full": _redirected(1, "/dev/full"),
    "stdout can't be written": _redirected(1, "/dev/null"),
    "nobody reads stdout": _broken_pipe,
    "stderr is full": _redirected(2, "/dev/full"),
    "no home": _set(HOME="/nowhere/at/all", XDG_DATA_HOME=None, XDG_CACHE_HOME=None),
    "the home is a file": _set(HOME="{folder}/m.onnx", XDG_DATA_HOME=None, XDG_CACHE_HOME=None),
    "the caches are a file": _set(XDG_CACHE_HOME="{folder}/m.onnx", OPBRIDGE_CACHE="{folder}/m.onnx"),
    "CXX is not a command": _set(CXX="g++ 'x"),
    "CXX does not exist": _set(CXX="no-such-compiler"),
    "CXX is a folder": _set(CXX="{folder}"),
    "CXX fails": _set(CXX="false"),
    "CXX writes nothing": _set(CXX="true"),
    "CXX prints junk": _set(CXX="cat /dev/urandom --"),
    "COLUMNS is junk": _set(COLUMNS="-7"),
    "LINES and COLUMNS are huge": _set(COLUMNS="9" * 30, LINES="9" * 30),
    "a dumb terminal": _set(TERM="dumb", COLUMNS="1"),
    "a strange terminal": _set(TERM="\x1b[31m", COLORTERM="%s", NO_COLOR="\x1b"),
    "no environment": lambda folder: [os.environ.pop(name) for name in list(os.environ) if name != "XDG_DATA_HOME"],
    "no PATH": _set(PATH=None),
    "strange folders": _set(HOME=_STRANGE, XDG_CACHE_HOME=_STRANGE, OPBRIDGE_CACHE=_STRANGE),
    "strange TMPDIR": _set(TMPDIR=_STRANGE),
    "strange CXX": _set(CXX=_STRANGE, CXXFLAGS=_STRANGE),
    "relative folders": _set(XDG_CACHE_HOME=".", XDG_DATA_HOME=".", OPBRIDGE_CACHE="../cache", TMPDIR="../temporary"),
    "devices as folders": _set(XDG_CACHE_HOME="/dev/null", OPBRIDGE_CACHE="/dev/full", HOME="/dev/zero"),
    "strange threads": _set(OMP_NUM_THREADS="-3", MKL_NUM_THREADS="x", OPENBLAS_NUM_THREADS="99999999999"),
    "the folder was deleted": lambda folder: shutil.rmtree(folder, ignore_errors=True),
    f"{FRESH}10 open files": _limit("RLIMIT_NOFILE", 10),
    f"{FRESH}800 MB of memory": _limit("RLIMIT_AS", 800 << 20),
    f"{FRESH}2 GB of memory": _limit("RLIMIT_AS", 2 << 30),
    f"{FRESH}no more processes": _limit("RLIMIT_NPROC", 0),
    f"{FRESH}strange language": _set(LC_ALL="xx_YY.KOI8-R", LANG="\x1b", LANGUAGE="é", TZ="/dev/zero"),
    f"{FRESH}strange threads": _set(OMP_NUM_THREADS="-3", MKL_NUM_THREADS="x", OMP_PLACES="{folder}"),
    f"{FRESH}no stdin, stdout and stderr": _closed(0, 1, 2),
    f"{FRESH}no stdout": _closed(1),
    f"{FRESH}no stderr": _closed(2),
    f"{FRESH}ASCII": _set(LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii"),
    f"{FRESH}no file may be written": _limit("RLIMIT_FSIZE", 0),
    f"{FRESH}stdout is full": _redirected(1, "/dev/full"),
}
"""Changes to the process and to its environment variables, which get the folder that it runs in."""
