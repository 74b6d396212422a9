"""Reads the protocol buffer encoding of ``.onnx`` files without large weights.

Parsing a whole file takes twice its size in memory. A protocol buffer states the length of each field before the
field, so large weights can be skipped; they are later mapped into memory from the file itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

__all__ = ["Stripped", "WireError", "field_tag", "fields", "strip_weights", "varint"]

# Field numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.name and raw_data.
_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5

_LARGE = 4096
"""Weights with fewer bytes are parsed with the rest of the model."""


class WireError(ValueError):
    """The bytes are not a valid protocol buffer."""


@dataclasses.dataclass(frozen=True)
class Stripped:
    """A model's bytes without its large weights.

    Attributes:
        model: A serialized ModelProto whose large initializers have no data.
        weights: The offset and the length in the file of each large initializer, by name.
    """

    model: bytes
    weights: dict[str, tuple[int, int]]


def strip_weights(data: memoryview) -> Stripped:
    """Split a serialized ModelProto into the model without the data of large initializers, and the places of that data.

    Args:
        data: The file, mapped into memory.

    Raises:
        WireError: The data is not a valid protocol buffer.
    """
    weights: dict[str, tuple[int, int]] = {}
    parts: list[bytes] = []
    for number, start, begin, end in fields(data, 0, len(data)):
        if number == _GRAPH:
            graph = _graph(data, begin, end, weights)
            parts += [field_tag(_GRAPH, len(graph)), graph]
        else:
            parts.append(bytes(data[start:end]))
    return Stripped(b"".join(parts), weights)


def _graph(data: memoryview, begin: int, end: int, weights: dict[str, tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    kept = begin
    for number, start, content, stop in fields(data, begin, end):
        if number == _INITIALIZER and stop - content >= _LARGE:
            tensor = _tensor(data, content, stop, weights)
            parts += [bytes(data[kept:start]), field_tag(_INITIALIZER, len(tensor)), tensor]
            kept = stop
    parts.append(bytes(data[kept:end]))
    return b"".join(parts)


def _tensor(data: memoryview, begin: int, end: int, weights: dict[str, tuple[int, int]]) -> bytes:
    parts = list(fields(data, begin, end))
    names = [bytes(data[content:stop]) for number, _, content, stop in parts if number == _NAME]
    raw = [(content, stop) for number, _, content, stop in parts if number == _RAW_DATA]
    name = names[-1].decode("utf-8", "replace") if names else ""
    if len(raw) != 1 or not name or name in weights or raw[0][1] - raw[0][0] < _LARGE:
        return bytes(data[begin:end])
    weights[name] = (raw[0][0], raw[0][1] - raw[0][0])
    return b"".join(bytes(data[start:stop]) for number, start, _, stop in parts if number != _RAW_DATA)


def fields(data: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Iterate over the fields of a message: the number, the start, the start of the content, and the end of each."""
    while position < end:
        start = position
        tag, position = varint(data, position, end)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, position = varint(data, position, end)
            stop = position + length
        elif kind == _VARINT:
            _, stop = varint(data, position, end)
        elif kind in (_FIXED64, _FIXED32):
            stop = position + (8 if kind == _FIXED64 else 4)
        else:
            raise WireError(f"a field of the unknown wire type {kind} at byte {start}")
        if stop > end or not tag >> 3:
            raise WireError(f"the field that begins at byte {start} ends beyond its message")
        yield tag >> 3, start, position, stop
        position = stop


def varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The number that begins at ``position``, and the position after it."""
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"a number that does not end before byte {position}")


def field_tag(field: int, length: int) -> bytes:
    """The bytes that precede the content of a length-delimited field: its number, its wire type and its length."""
    return _encoded(field << 3 | _LENGTH_DELIMITED) + _encoded(length)


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
