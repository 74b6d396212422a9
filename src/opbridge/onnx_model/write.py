"""Writes a model to a file without a second copy of its weights in memory.

``onnx.save`` builds the whole protocol buffer in memory, which takes three times the size of the weights. A protocol
buffer is a sequence of tagged fields, and the fields of a message may come in any order. The small parts are therefore
serialized as usual, and each large initializer is written after them, directly from the tensor's memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.onnx_model.wire import field_tag

__all__ = ["LARGEST_FILE", "place_of", "save_model"]

LARGEST_FILE = 2_000_000_000
"""If the weights have more bytes than this, they go to a separate file: a protocol buffer is limited to 2 GiB."""

_AT_ONCE = 1 << 24
"""The number of bytes of a weight that are written at a time."""

_SMALL = 1024
"""Weights with fewer bytes are serialized with the rest of the model."""

_ALIGNMENT = 4096
"""The alignment of each weight in a separate file, which lets an engine map it into memory."""

# Field numbers of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


def save_model(model: ir.Model, folder: Path, *, name: str = "model.onnx", external_data: bool | None = None) -> None:
    """Write ``model`` into ``folder``.

    Args:
        model: The model, which is not changed.
        folder: An existing folder.
        name: The file's name; a separate file of weights is called ``name + ".data"``.
        external_data: Whether the weights go to a separate file; by default if they exceed :data:`LARGEST_FILE` bytes.
    """
    large = {
        key: value.const_value
        for key, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.nbytes >= _SMALL
        and value.const_value.dtype is not ir.DataType.STRING
    }
    apart = sum(tensor.nbytes for tensor in large.values()) > LARGEST_FILE if external_data is None else external_data
    with contextlib.ExitStack() as stack:
        file = stack.enter_context((folder / name).open("wb", buffering=1 << 20))
        if apart and large:
            data = stack.enter_context((folder / f"{name}.data").open("wb", buffering=1 << 20))
            offsets: dict[tuple[int, int], int] = {}
            _write(model, {key: _written_apart(key, tensor, data, offsets) for key, tensor in large.items()}, file)
        else:
            _write(model, {key: _written_inside(key, tensor) for key, tensor in large.items()}, file)


@dataclasses.dataclass(frozen=True)
class _Initializer:
    """The message of an initializer: its beginning, and the tensor whose bytes follow unless stored in another file."""

    head: bytes
    tensor: ir.TensorProtocol | None

    @property
    def size(self) -> int:
        return len(self.head) + (self.tensor.nbytes if self.tensor is not None else 0)


def _written_inside(name: str, tensor: ir.TensorProtocol) -> _Initializer:
    head = _described(name, tensor).SerializeToString(deterministic=True)
    return _Initializer(head + field_tag(_RAW_DATA, tensor.nbytes), tensor)


def _written_apart(
    name: str, tensor: ir.TensorProtocol, data: BinaryIO, offsets: dict[tuple[int, int], int]
) -> _Initializer:
    """Append the tensor to ``data``, and return a message that states its place there.

    Weights that share their memory share their bytes in the file: a thousand weights of a file may be the same part of
    another one.
    """
    place = place_of(tensor)
    offset = None if place is None else offsets.get(place)
    if offset is None:
        data.write(bytes(-data.tell() % _ALIGNMENT))
        offset = data.tell()
        for chunk in _chunks(tensor):
            data.write(chunk)
        if place is not None:
            offsets[place] = offset
    proto = _described(name, tensor)
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", Path(data.name).name), ("offset", offset), ("length", tensor.nbytes)):
        proto.external_data.add(key=key, value=str(value))
    return _Initializer(proto.SerializeToString(deterministic=True), None)


def place_of(tensor: ir.TensorProtocol) -> tuple[int, int] | None:
    """The address and the number of bytes of a tensor that holds its elements as an array; None for any other."""
    array = tensor.raw if isinstance(tensor, ir.Tensor) else None
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.nbytes:
        return None
    return array.ctypes.data, array.nbytes


def _write(model: ir.Model, large: dict[str, _Initializer], file: BinaryIO) -> None:
    proto = _without(model, large)
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    file.write(proto.SerializeToString(deterministic=True))
    file.write(field_tag(_GRAPH, len(graph) + sum(_field_size(_INITIALIZER, item.size) for item in large.values())))
    file.write(graph)
    for item in large.values():
        file.write(field_tag(_INITIALIZER, item.size))
        file.write(item.head)
        if item.tensor is not None:
            for chunk in _chunks(item.tensor):
                file.write(chunk)


def _without(model: ir.Model, names: Collection[str]) -> onnx.ModelProto:
    """The model as a protocol buffer, without the initializers named ``names``."""
    tensors = {name: model.graph.initializers[name].const_value for name in names}
    try:
        for name in names:
            model.graph.initializers[name].const_value = _placeholder(name)
        proto = ir.to_proto(model)
    finally:
        for name, tensor in tensors.items():
            model.graph.initializers[name].const_value = tensor
    kept = [item for item in proto.graph.initializer if item.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return proto


def _placeholder(name: str) -> ir.TensorProtocol:
    return ir.tensor(np.zeros((), dtype=np.float32), name=name)


def _described(name: str, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    return onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=[int(size) for size in tensor.shape])


def _chunks(tensor: ir.TensorProtocol) -> Iterator[memoryview | bytes]:
    # Elements of less than a byte are packed in the file but not in memory.
    # A lazy tensor computes its elements on every call, so it is called once.
    numbers = tensor.numpy()
    if tensor.dtype.bitwidth < 8 or sys.byteorder != "little" or not numbers.flags.c_contiguous:
        yield tensor.tobytes()
        return
    array = numbers.reshape(-1).view(np.uint8)
    release = getattr(tensor, "release", None)
    for start in range(0, array.size, _AT_ONCE):
        yield memoryview(array[start : start + _AT_ONCE])
        if release is not None:
            # Otherwise the pages of a mapped weight would stay in memory after they are written.
            release()


def _field_size(field: int, length: int) -> int:
    return len(field_tag(field, length)) + length
