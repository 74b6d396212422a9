"""Writes an ``onnx_ir`` model to one file without holding a second copy of its weights.

``onnx.save`` builds the whole protocol buffer in memory, which takes three times the weights. A protocol buffer is a
sequence of tagged fields, and a message's fields may come in any order, so the small parts are serialised as usual and
each initializer is written after them, straight from the tensor's own memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

__all__ = ["LARGEST_FILE", "save_model"]

LARGEST_FILE = 2_000_000_000
"""Bytes of weights above which they go to a file of their own: a protocol buffer ends at 2 GiB."""

_SMALL = 1024
"""Weights of fewer bytes are serialised with the rest."""

# Field numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_LENGTH_DELIMITED = 2


def save_model(model: ir.Model, folder: Path, *, name: str = "model.onnx", external_data: bool | None = None) -> None:
    """Write ``model`` into ``folder``.

    Args:
        model: Not changed.
        folder: Exists.
        name: The file's name; weights of their own go to ``name + ".data"``.
        external_data: Whether the weights get a file of their own; by default above :data:`LARGEST_FILE` bytes.
    """
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if external_data or (external_data is None and size > LARGEST_FILE):
        ir.save(model, folder / name, external_data=f"{name}.data")
        return
    large = {
        key: value.const_value
        for key, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.nbytes >= _SMALL and _is_byte_sized(value.const_value)
    }
    with (folder / name).open("wb", buffering=1 << 20) as file:
        _write(model, large, file)


def _is_byte_sized(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype.bitwidth >= 8 and tensor.dtype is not ir.DataType.STRING


def _write(model: ir.Model, large: dict[str, ir.TensorProtocol], file: BinaryIO) -> None:
    values = {key: model.graph.initializers[key] for key in large}
    try:
        for key, value in values.items():
            value.const_value = _placeholder(key)
        proto = ir.to_proto(model)
    finally:
        for key, tensor in large.items():
            values[key].const_value = tensor
    kept = [item for item in proto.graph.initializer if item.name not in large]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    heads = {key: _head(key, tensor) for key, tensor in large.items()}
    bodies = sum(_field_size(_INITIALIZER, len(heads[key]) + large[key].nbytes) for key in large)
    file.write(proto.SerializeToString(deterministic=True))
    file.write(_tag(_GRAPH, len(graph) + bodies))
    file.write(graph)
    for key, tensor in large.items():
        file.write(_tag(_INITIALIZER, len(heads[key]) + tensor.nbytes))
        file.write(heads[key])
        for chunk in _chunks(tensor):
            file.write(chunk)


def _placeholder(name: str) -> ir.TensorProtocol:
    return ir.tensor(np.zeros((), dtype=np.float32), name=name)


def _head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """The initializer's message up to and with the length of its data."""
    proto = onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=[int(size) for size in tensor.shape])
    return proto.SerializeToString(deterministic=True) + _tag(_RAW_DATA, tensor.nbytes)


def _chunks(tensor: ir.TensorProtocol) -> Iterator[memoryview | bytes]:
    array = tensor.numpy()
    if not array.flags.c_contiguous or not np.little_endian:
        yield tensor.tobytes()
    else:
        yield memoryview(array.reshape(-1).view(np.uint8))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _tag(field: int, length: int) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(length)


def _field_size(field: int, length: int) -> int:
    return len(_tag(field, length)) + length
