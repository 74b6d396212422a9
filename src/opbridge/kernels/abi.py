"""The structures of ``opbridge/abi.h`` for ctypes, and the conversion of NumPy arrays and Python values to them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

__all__ = [
    "ABI_VERSION",
    "ALLOCATE_OUTPUT",
    "BODY",
    "DTYPES",
    "ERROR_SIZE",
    "FUNCTION",
    "KINDS",
    "MAX_RANK",
    "OPTIONAL",
    "PARALLEL_FOR",
    "SCRATCH",
    "VARIADIC",
    "Call",
    "Host",
    "Library",
    "Operator",
    "Tensor",
    "Value",
    "python_value",
    "tensor_of",
    "value_of",
]

ABI_VERSION = 1
MAX_RANK = 32
ERROR_SIZE = 1024
OPTIONAL = 1
VARIADIC = 2

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
"""Element types by their number."""

KINDS = ("none", "int", "float", "string", "ints", "floats", "strings", "tensor")
"""Kinds of attributes; the position is the number."""


class Tensor(ctypes.Structure):
    """``opbridge_tensor``."""

    _fields_ = (
        ("data", c_void_p),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("rank", c_int32),
        ("dtype", c_int32),
    )


class String(ctypes.Structure):
    """``opbridge_string``."""

    _fields_ = (("data", c_char_p), ("size", c_int64))


class Value(ctypes.Structure):
    """``opbridge_value``."""

    _fields_ = (("data", c_void_p), ("count", c_int64), ("kind", c_int32))


class Argument(ctypes.Structure):
    """``opbridge_argument``."""

    _fields_ = (("name", c_char_p), ("flags", c_int32), ("type_variable", c_int32), ("dtype", c_int32))


class Attribute(ctypes.Structure):
    """``opbridge_attribute``."""

    _fields_ = (("name", c_char_p), ("kind", c_int32), ("required", c_int32), ("default_value", Value))


class Call(ctypes.Structure):
    """``opbridge_call``; its fields are set below, since the callbacks refer to it."""


FUNCTION = ctypes.CFUNCTYPE(c_int32, POINTER(Call))
BODY = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, POINTER(Call), c_int64, c_int64, BODY, c_void_p)
SCRATCH = ctypes.CFUNCTYPE(c_void_p, POINTER(Call), c_int64)
ALLOCATE_OUTPUT = ctypes.CFUNCTYPE(c_int32, POINTER(Call), c_int32, c_int32, POINTER(c_int64))


class Host(ctypes.Structure):
    """``opbridge_host``."""

    _fields_ = (("parallel_for", PARALLEL_FOR), ("scratch", SCRATCH), ("allocate_output", ALLOCATE_OUTPUT))


class Variant(ctypes.Structure):
    """``opbridge_variant``."""

    _fields_ = (("dtypes", POINTER(c_int32)), ("run", FUNCTION))


class Operator(ctypes.Structure):
    """``opbridge_operator``."""

    _fields_ = (
        ("domain", c_char_p),
        ("name", c_char_p),
        ("schema", c_char_p),
        ("inputs", POINTER(Argument)),
        ("outputs", POINTER(Argument)),
        ("attributes", POINTER(Attribute)),
        ("type_variables", POINTER(c_char_p)),
        ("variants", POINTER(Variant)),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("attribute_count", c_int32),
        ("type_variable_count", c_int32),
        ("variant_count", c_int32),
        ("shape", FUNCTION),
    )


Call._fields_ = (
    ("op", POINTER(Operator)),
    ("inputs", POINTER(Tensor)),
    ("outputs", POINTER(Tensor)),
    ("attributes", POINTER(Value)),
    ("host", POINTER(Host)),
    ("host_data", c_void_p),
    ("input_count", c_int32),
    ("output_count", c_int32),
    ("error", c_char * ERROR_SIZE),
)


class Library(ctypes.Structure):
    """``opbridge_library``."""

    _fields_ = (
        ("abi_version", c_int32),
        ("struct_size", c_int32),
        ("platform", c_char_p),
        ("error", c_char_p),
        ("operators", POINTER(POINTER(Operator))),
        ("operator_count", c_int32),
    )


_NUMBERS = {name: number for number, name in DTYPES.items()}


def tensor_of(array: np.ndarray | None, keep: list[Any]) -> Tensor:
    """A tensor that shares an array's memory; an absent tensor for None.

    Args:
        array: An array of a dtype in ``DTYPES``, in native byte order.
        keep: A list to which objects are added that must live as long as the result.
    """
    if array is None:
        return Tensor()
    whole = all(stride % array.itemsize == 0 for stride in array.strides)
    if not (whole and array.flags.aligned):
        array = array.copy()
    sizes = (c_int64 * max(array.ndim, 1))(*array.shape)
    strides = None
    if not array.flags.c_contiguous:
        strides = (c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
    keep += [array, sizes, strides]
    return Tensor(array.ctypes.data, sizes, strides, array.ndim, _NUMBERS[array.dtype.name])


def value_of(kind: str, value: Any, keep: list[Any]) -> Value:
    """An attribute's value of a kind; an absent value for None.

    Args:
        kind: One of ``KINDS``.
        value: An int, float, str, sequence of these, or array.
        keep: A list to which objects are added that must live as long as the result.

    Raises:
        TypeError: The value is not of the kind.
    """
    if value is None:
        return Value()
    values = value if kind.endswith("s") else [value]
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(f"{value!r} is not a list of {kind}")
    count = len(values)
    if kind in ("int", "ints"):
        if any(isinstance(item, bool) or not isinstance(item, int | np.integer) for item in values):
            raise TypeError(f"{value!r} is not of kind {kind}")
        data: Any = (c_int64 * max(count, 1))(*(int(item) for item in values))
    elif kind in ("float", "floats"):
        if any(isinstance(item, bool) or not isinstance(item, float | np.floating) for item in values):
            raise TypeError(f"{value!r} is not of kind {kind}")
        data = (c_double * max(count, 1))(*(float(item) for item in values))
    elif kind == "tensor":
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{value!r} is not an array")
        data = ctypes.pointer(tensor_of(np.ascontiguousarray(value).reshape(value.shape), keep))
    else:
        if any(not isinstance(item, str) for item in values):
            raise TypeError(f"{value!r} is not of kind {kind}")
        texts = [item.encode() for item in values]
        keep.append(texts)
        if kind == "string":
            data, count = ctypes.create_string_buffer(texts[0]), len(texts[0])
        else:
            data = (String * max(count, 1))(*(String(text, len(text)) for text in texts))
    keep.append(data)
    return Value(ctypes.cast(data, c_void_p), count, KINDS.index(kind))


def python_value(value: Value) -> Any:
    """The Python value of an attribute that is not a tensor; None if it is absent."""
    kind = KINDS[value.kind]
    if kind == "none":
        return None
    if kind == "string":
        return ctypes.string_at(value.data, value.count).decode()
    element: Any = {"i": c_int64, "f": c_double, "s": String}[kind[0]]
    items = ctypes.cast(value.data, POINTER(element))
    if kind == "strings":
        return [ctypes.string_at(items[i].data, items[i].size).decode() for i in range(value.count)]
    return [items[i] for i in range(value.count)] if kind.endswith("s") else items[0]
