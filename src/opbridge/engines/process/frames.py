"""Messages between an engine's child process and its parent, over a pair of pipes.

A frame consists of 8 bytes (the length of the header, big-endian), the header as JSON, and the bytes of each array in C
order, in the order of their descriptions in the header. Arrays are written from and read into their own memory, without
an intermediate copy. Only arrays of strings are part of the header.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from opbridge.errors import InputError
from opbridge.kernels.dtypes import numpy_dtype

__all__ = ["read_frame", "write_frame"]

_LENGTH = struct.Struct(">Q")


def write_frame(stream: IO[bytes], message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
    """Write one message and flush.

    Args:
        stream: An unbuffered or buffered binary stream.
        message: JSON data.
        arrays: Arrays by name.

    Raises:
        InputError: An array holds Python objects that are not strings.
    """
    contiguous = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    described = [_described(name, array) for name, array in contiguous.items()]
    header = json.dumps({"message": message, "arrays": described}).encode()
    _write_all(stream, memoryview(_LENGTH.pack(len(header)) + header))
    for array, entry in zip(contiguous.values(), described, strict=True):
        if array.nbytes and "strings" not in entry:
            _write_all(stream, array.reshape(-1).view(np.uint8).data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read one message: its JSON data and its arrays.

    Raises:
        EOFError: The other process has closed the pipe.
    """
    (length,) = _LENGTH.unpack(_read_into(stream, bytearray(_LENGTH.size)))
    header = json.loads(bytes(_read_into(stream, bytearray(length))))
    arrays = {}
    for described in header["arrays"]:
        if "strings" in described:
            strings = np.array(described["strings"], object)
            arrays[described["name"]] = strings.reshape(described["shape"])
            continue
        array = np.empty(math.prod(described["shape"]), numpy_dtype(described["dtype"]))
        _read_into(stream, array.view(np.uint8))
        arrays[described["name"]] = array.reshape(described["shape"])
    return header["message"], arrays


def _described(name: str, array: np.ndarray) -> dict[str, Any]:
    """The description of an array in the header."""
    shape = list(array.shape)
    if not array.dtype.hasobject and array.dtype.kind not in "SU":
        return {"name": name, "dtype": array.dtype.name, "shape": shape}
    strings = array.reshape(-1).tolist()
    if not all(isinstance(item, str) for item in strings):
        raise InputError(
            f"Array {name!r} holds Python objects, which can't be sent to an engine in a process of its own.",
            fix="pass an array of numbers or of str.",
        )
    return {"name": name, "strings": strings, "shape": shape}


def _write_all(stream: IO[bytes], data: memoryview) -> None:
    while data:
        written = stream.write(data)
        data = data[written:]


def _read_into(stream: IO[bytes], buffer: Any) -> Any:
    view = memoryview(buffer)
    filled = 0
    while filled < len(view):
        count = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError("the other side has closed the pipe")
        filled += count
    return buffer
