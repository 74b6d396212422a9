"""The inputs and outputs of an ``.onnx`` file, read without the onnx package, which engines do not need to run."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from opbridge.engines.base import TensorSpec
from opbridge.errors import InputError
from opbridge.onnx_model.wire import WireError, fields, varint

__all__ = ["check_model_file", "check_threads", "onnx_specs"]

# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 7, 5, 11, 12
_TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE, _TYPE_TENSOR = 8, 1, 2, 1
_ELEMENT_TYPE, _SHAPE, _SIZE, _SIZE_VALUE, _SIZE_NAME = 1, 2, 1, 1, 2

_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "str",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
}


def onnx_specs(path: Path) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs (without initializers) and the outputs of a model file.

    Raises:
        InputError: The file is missing or not an ONNX model, or an input or output is not a tensor with a NumPy dtype.
    """
    check_model_file(path)
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise _no_model(path, "it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            try:
                graph = [(begin, end) for number, _, begin, end in fields(data, 0, len(data)) if number == _MODEL_GRAPH]
                if not graph:
                    raise _no_model(path, "it has no graph")
                return _specs_of_graph(path, data, *graph[-1])
            except (WireError, UnicodeDecodeError) as error:
                raise _no_model(path, str(error)) from error


def check_model_file(path: Path) -> None:
    """Raise InputError if there is no readable file at ``path``."""
    if not path.is_file():
        other = "is a folder, not a model file" if path.is_dir() else "is a pipe or a device, not a model file"
        kind = other if path.exists() else "does not exist"
        raise InputError(f"The model {str(path)!r} {kind}.", fix="check the path.")
    if not os.access(path, os.R_OK):
        raise InputError(f"The model {str(path)!r} can't be read.", fix="give yourself permission to read it.")


def check_threads(threads: int | None) -> None:
    """Raise InputError for a number of threads below 1."""
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads}: a session needs at least one thread.", fix="pass 1 or more, or None.")


def _no_model(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path.name!r} is not an ONNX model, or is truncated: {reason}",
        fix="export or download it again.",
        details=str(path),
    )


def _specs_of_graph(
    path: Path, data: memoryview, begin: int, end: int
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    weights: set[str] = set()
    values: dict[int, list[tuple[int, int]]] = {_GRAPH_INPUT: [], _GRAPH_OUTPUT: []}
    for number, _, start, stop in fields(data, begin, end):
        if number == _GRAPH_INITIALIZER:
            weights.add(_text(data, _field(data, start, stop, _TENSOR_NAME)))
        elif number in values:
            values[number].append((start, stop))
    inputs = [_spec(path, data, *place) for place in values[_GRAPH_INPUT]]
    outputs = [_spec(path, data, *place) for place in values[_GRAPH_OUTPUT]]
    return tuple(spec for spec in inputs if spec.name not in weights), tuple(outputs)


def _spec(path: Path, data: memoryview, begin: int, end: int) -> TensorSpec:
    name = _text(data, _field(data, begin, end, _VALUE_NAME))
    tensor = _field(data, *_field(data, begin, end, _VALUE_TYPE), _TYPE_TENSOR)
    element = _field(data, *tensor, _ELEMENT_TYPE)
    dtype = _DTYPES.get(varint(data, element[0], element[1])[0]) if element[0] < element[1] else None
    if dtype is None:
        raise InputError(
            f"{path.name!r}: {name!r} is not a tensor of a type that NumPy arrays can hold.",
            fix="export the model so that its inputs and outputs are plain tensors.",
        )
    sizes = tuple(_sizes(data, name, *_field(data, *tensor, _SHAPE)))
    return TensorSpec(name, dtype, sizes)


def _sizes(data: memoryview, name: str, begin: int, end: int) -> Iterator[int | str]:
    dims = [(start, stop) for number, _, start, stop in fields(data, begin, end) if number == _SIZE]
    for axis, (start, stop) in enumerate(dims):
        value = _field(data, start, stop, _SIZE_VALUE)
        size = varint(data, *value)[0] if value[0] < value[1] else None
        if size is not None and size >> 63 == 0:
            yield size
        else:  # Some exporters write a negative size for an unknown one.
            yield _text(data, _field(data, start, stop, _SIZE_NAME)) or f"{name}.{axis}"


def _field(data: memoryview, begin: int, end: int, field: int) -> tuple[int, int]:
    """The range of the last field with this number; an empty range if there is none."""
    found = (end, end)
    for number, _, start, stop in fields(data, begin, end):
        if number == field:
            found = (start, stop)
    return found


def _text(data: memoryview, place: tuple[int, int]) -> str:
    return bytes(data[place[0] : place[1]]).decode()
