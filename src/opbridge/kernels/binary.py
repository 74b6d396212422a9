"""The platform of a shared library, read from its header before the system's loader opens it."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

__all__ = ["binary_platform", "is_object", "missing_bytes", "own_platform"]

_ELF_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0xF3: "riscv64", 0x03: "x86", 0x28: "arm"}
_MACHO_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "x86"}


def own_platform() -> str:
    """The platform of this process in the form that libraries of kernels use: "linux-x86_64"."""
    system = {"win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    return f"{system}-{ {'amd64': 'x86_64', 'arm64': 'aarch64'}.get(machine, machine) }"


def binary_platform(path: Path) -> str | None:
    """The platform of a shared library, as in ``own_platform()``; None for a file that is not a shared library.

    Raises:
        OSError: The file can't be read.
    """
    with open(path, "rb") as file:
        head = file.read(4096)
    if head[:4] == b"\x7fELF" and len(head) >= 20:
        order = "<" if head[5] == 1 else ">"
        kind, machine = struct.unpack_from(f"{order}HH", head, 16)
        shared_object = 3
        return f"linux-{_ELF_MACHINES.get(machine, hex(machine))}" if kind == shared_object else None
    if head[:4] == b"\xcf\xfa\xed\xfe" and len(head) >= 8:
        (machine,) = struct.unpack_from("<I", head, 4)
        return f"macos-{_MACHO_MACHINES.get(machine, hex(machine))}"
    if head[:2] == b"MZ" and len(head) >= 0x40:
        (offset,) = struct.unpack_from("<I", head, 0x3C)
        if head[offset : offset + 4] == b"PE\0\0" and len(head) >= offset + 6:
            (machine,) = struct.unpack_from("<H", head, offset + 4)
            return f"windows-{_PE_MACHINES.get(machine, hex(machine))}"
    return None


def is_object(path: Path) -> bool:
    """Whether a file can be what a compiler writes for this system: an object file, or LLVM's intermediate code.

    Raises:
        OSError: The file can't be read.
    """
    with open(path, "rb") as file:
        head = file.read(4)
    if sys.platform == "win32":
        return bool(head)
    return head in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"BC\xc0\xde")


def missing_bytes(path: Path) -> int:
    """The number of bytes that are missing at the end of an ELF file; loading a truncated file ends the process.

    Raises:
        OSError: The file can't be read.
    """
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02" or len(head) < 64:
            return 0
        order = "<" if head[5] == 1 else ">"
        (start,) = struct.unpack_from(f"{order}Q", head, 32)
        size, count = struct.unpack_from(f"{order}HH", head, 54)
        there = file.seek(0, 2)
        end = start + size * count
        if size < 40:
            return max(0, 64 - there)  # The file has no section table.
        if end > there:
            return end - there
        file.seek(start)
        table = file.read(size * count)
        for offset in range(0, len(table) - size + 1, size):
            where, _, _, length = struct.unpack_from(f"{order}QQQQ", table, offset + 8)
            end = max(end, where + length)
        return max(0, end - there)
