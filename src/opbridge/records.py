"""Results as data: dataclasses to JSON and back, numbers that JSON does not have, and arrays as ``.npz`` files.

A result is a frozen dataclass that inherits :class:`Record`. Its annotations are all that reading and writing need: no
class spells out how its fields become JSON. Only the standard library and NumPy are imported, so that a bundle loads
where neither torch nor onnx is installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import math
import re
import types
import typing
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from opbridge.errors import InputError

__all__ = ["Record", "StoredRecord", "from_dict", "printable", "rounded", "to_dict", "to_json", "write_npz"]

_T = TypeVar("_T")
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)
"""All control characters but the tab and the end of a line, and those that hide text or show it in another order."""

_NOT_FINITE = frozenset(str(number) for number in (math.inf, -math.inf, math.nan))


class Record:
    """A frozen dataclass that can be written as JSON data.

    Attributes:
        json_keys: The attributes that are written, in their order: fields and properties. Empty for all fields.
    """

    json_keys: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON data."""
        return to_dict(self)


class StoredRecord(Record):
    """A record that is read back from what was written."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote.

        Raises:
            InputError: A field is missing or has another type.
        """
        return from_dict(cls, data)


def to_dict(record: Any) -> dict[str, Any]:
    """A dataclass as JSON data, the records in it by their own ``to_dict``."""
    keys = getattr(record, "json_keys", ()) or [field.name for field in dataclasses.fields(record)]
    return {key: to_json(getattr(record, key)) for key in keys}


def to_json(value: Any) -> Any:
    """A value as JSON data: tuples as lists, and numbers that are not finite as the strings that ``float`` reads."""
    if isinstance(value, Record):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def printable(value: Any) -> Any:
    """JSON data or text with an escape sequence for each character that controls a terminal, or the order of a text.

    A name in somebody's model must not control what is seen of it and of what follows it.
    """
    if isinstance(value, str):
        return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], value)
    if isinstance(value, Mapping):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    return value


def from_dict(cls: type[_T], data: object) -> _T:
    """The dataclass ``cls`` with the values of ``data``. Keys that are not fields are ignored.

    Args:
        cls: A dataclass whose annotations can be resolved where it is defined.
        data: A mapping that :func:`to_dict` wrote, or what JSON made of it.

    Raises:
        InputError: ``data`` is not a mapping, or a field is missing or has another type; the message names the field.
    """
    return typing.cast(_T, _read_record(cls, data, cls.__name__))


def _read_record(cls: Any, data: object, place: str) -> object:
    if not isinstance(data, Mapping):
        raise _wrong(place, "an object", data)
    values = {}
    for field in dataclasses.fields(cls):
        name = f"{place}.{field.name}"
        if field.name in data:
            values[field.name] = _read(_annotations(cls)[field.name], data[field.name], name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{name} is missing.", fix="pass data that opbridge wrote, unchanged.")
    return cls(**values)


@functools.cache
def _annotations(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _read(annotation: Any, data: Any, place: str) -> Any:
    """``data`` as a value of the annotated type."""
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(annotation), data, place)
    if origin is typing.Literal:
        choices = typing.get_args(annotation)
        if data not in choices:
            raise _wrong(place, f"one of {', '.join(map(repr, choices))}", data)
        return data
    if origin in (Any, object):
        return data
    if dataclasses.is_dataclass(origin):
        return _read_record(origin, data, place)
    if isinstance(origin, type):
        if issubclass(origin, Mapping):
            return _read_mapping(annotation, data, place)
        if issubclass(origin, enum.Enum):
            return _read_enum(origin, data, place)
        if issubclass(origin, Sequence) and not issubclass(origin, str):
            return _read_sequence(annotation, origin, data, place)
        if origin in _SIMPLE:
            return _read_simple(origin, data, place)
    raise TypeError(f"{place}: a {annotation} can't be read from JSON data.")


_SIMPLE: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    Path: "a path",
}


def _read_simple(kind: type, data: Any, place: str) -> Any:
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    if kind is float and (is_number or (isinstance(data, str) and data in _NOT_FINITE)):
        return float(data)
    if kind is Path and isinstance(data, str):
        return Path(data)
    if isinstance(data, kind) and (kind is not int or is_number):
        return data
    raise _wrong(place, _SIMPLE[kind], data)


def _read_union(choices: Sequence[Any], data: Any, place: str) -> Any:
    others = [choice for choice in choices if choice is not type(None)]
    if data is None and len(others) < len(choices):
        return None
    if len(others) == 1:
        return _read(others[0], data, place)
    for choice in others:
        with contextlib.suppress(InputError):
            return _read(choice, data, place)
    raise _wrong(place, " or ".join(_SIMPLE.get(choice, str(choice)) for choice in choices), data)


def _read_enum(kind: type[enum.Enum], data: Any, place: str) -> enum.Enum:
    try:
        return kind(data)
    except ValueError:
        raise _wrong(place, f"one of {', '.join(repr(member.value) for member in kind)}", data) from None


def _read_mapping(annotation: Any, data: Any, place: str) -> dict[Any, Any]:
    if not isinstance(data, Mapping):
        raise _wrong(place, "an object", data)
    _, item = typing.get_args(annotation) or (str, Any)
    for key in data:
        if not isinstance(key, str):
            raise _wrong(f"a key of {place}", "a string", key)
    return {key: _read(item, value, f"{place}[{key!r}]") for key, value in data.items()}


def _read_sequence(annotation: Any, origin: type, data: Any, place: str) -> Any:
    if not isinstance(data, list | tuple):
        raise _wrong(place, "a list", data)
    items = typing.get_args(annotation) or (Any, ...)
    if origin is tuple and items[-1] is not Ellipsis:
        if len(items) != len(data):
            raise _wrong(place, f"a list of {len(items)} values", data)
    else:
        items = items[:1] * len(data)
    read = [
        _read(item, value, f"{place}[{index}]") for index, (item, value) in enumerate(zip(items, data, strict=True))
    ]
    return read if origin is list else tuple(read)


def _wrong(place: str, expected: str, data: Any) -> InputError:
    found = repr(data)
    shown = found if len(found) <= 60 else f"{found[:57]}..."
    return InputError(f"{place} must be {expected}, found {shown}.", fix="pass data that opbridge wrote, unchanged.")


def rounded(value: float) -> str:
    """The number with three significant digits; from 1,000 to a million as an integer: ``"1.93"``, ``"4,190"``."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def write_npz(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays. Unlike numpy.savez it takes an array named "file", and appends nothing to the file's name."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array).reshape(np.shape(array)))
