"""Reads ``.onnx`` files safely: a model is checked before anything else is done with it.

Weights are mapped into memory instead of being read, whether they are in the file itself or in external data files.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from opbridge.errors import InputError, first_line
from opbridge.onnx_model.scopes import all_graphs
from opbridge.onnx_model.structure import check_structure
from opbridge.onnx_model.wire import WireError, strip_weights

__all__ = ["MappedTensor", "model_of_proto", "read_model"]


class MappedTensor(ir.Tensor):
    """A weight that is mapped into memory from a file."""

    place: tuple[mmap.mmap, int, int]

    def release(self) -> None:
        """Free the memory of the pages that were read; a later access reads them again."""
        mapping, offset, length = self.place
        start = offset - offset % mmap.PAGESIZE
        if hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED, start, length + offset - start)


def read_model(path: str | os.PathLike[str]) -> ir.Model:
    """Read a model and sort its nodes topologically.

    Args:
        path: The ``.onnx`` file. External data files must be in the same folder or below it.

    Returns:
        A model whose weights are mapped from the files. The files must not be modified while the model is in use;
        replacing one by a rename is safe.

    Raises:
        InputError: The file is missing or is not an ONNX model; external data is missing, too short, or outside the
            model's folder (an absolute path, ``../``, a symbolic link); the graph has a cycle or reads undefined
            values; a version is unknown. The message names the file, tensor or node.
    """
    file = Path(path)
    mapping = _map(file, f"The model {str(path)!r}")
    try:
        stripped = strip_weights(memoryview(mapping))
        proto = onnx.ModelProto.FromString(stripped.model)
    except (WireError, DecodeError, UnicodeDecodeError) as error:
        raise _no_model(path, str(error)) from error
    if not proto.ir_version and not proto.opset_import:
        raise _no_model(path, "it has neither an IR version nor an opset")
    name = f"The model {file.name!r}"
    try:
        check_structure(proto, name)
        _check_text(proto)
    except (TypeError, UnicodeDecodeError) as error:
        # protobuf returns a string that is not UTF-8 as bytes, or raises when it is read.
        raise _no_model(path, f"a name in it is not UTF-8 text ({first_line(error)})") from error
    files = _Files(file.parent, name)
    for tensor in _tensors(proto):
        _check_dtype(tensor, name)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            files.check(tensor)
        elif tensor.name not in stripped.weights or _has_content(tensor):
            _check_content(tensor, name)
    model = _deserialized(proto, name)
    for key, (offset, length) in stripped.weights.items():
        value = model.graph.initializers[key]
        value.const_value = _mapped(mapping, offset, length, value.const_value, name)
    _map_external(model, files, name)
    return model


def model_of_proto(proto: onnx.ModelProto) -> ir.Model:
    """Check and convert a model in memory; the counterpart of :func:`read_model`.

    Args:
        proto: The model, which must contain its weights.

    Raises:
        InputError: The model is invalid, as described at :func:`read_model`, or refers to external data.
    """
    check_structure(proto, "The model")
    for tensor in _tensors(proto):
        _check_dtype(tensor, "The model")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise InputError(
                f"The model's weight {tensor.name!r} is in another file, and a ModelProto does not record its folder.",
                fix="pass the path of the .onnx file, or load it with onnx.load(path), which reads the weights too.",
            )
        _check_content(tensor, "The model")
    return _deserialized(proto, "The model")


def _no_model(path: Any, reason: str) -> InputError:
    return InputError(f"{str(path)!r} is not an ONNX model: {reason}.", fix="pass a complete .onnx file.")


def _map(file: Path, what: str) -> mmap.mmap:
    try:
        with open(file, "rb", opener=_open_without_waiting) as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{what} is not a regular file.", fix="pass the path of a file.")
            if not status.st_size:
                raise InputError(f"{what} is empty.", fix="pass a complete file.")
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"{what} can't be read: {error.strerror or error}.", fix="check the path.") from error


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would otherwise block until it has a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _deserialized(proto: onnx.ModelProto, name: str) -> ir.Model:
    try:
        model = ir.from_proto(proto)
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            if not _is_sorted(graph):
                graph.sort()
        _forget_negative_sizes(model)
    except (ir.serde.SerdeError, ValueError, TypeError, NotImplementedError) as error:
        reason = first_line(error.__cause__ or error)
        raise InputError(
            f"{name} can't be read: {reason}", fix="check it with onnx.checker.check_model.", details=str(error)
        ) from error
    return model


def _is_sorted(graph: ir.Graph) -> bool:
    """Whether each node comes after those whose results it and its subgraphs read; to sort takes four times as long."""
    seen: set[ir.Node | None] = {None}
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if any(value is not None and value.producer() not in seen for value in node.inputs):
            return False
        seen.add(node)
    return True


def _forget_negative_sizes(model: ir.Model) -> None:
    """Make sizes below 0 dynamic dimensions without a name: some exporters write -1 for these."""
    for graph in all_graphs(model):
        for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
            if value.shape is not None and any(isinstance(size, int) and size < 0 for size in value.shape):
                sizes = [None if isinstance(size, int) and size < 0 else size for size in value.shape]
                value.shape = ir.Shape(sizes)


class _Files:
    """The external data files of one model; each is checked and mapped once."""

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder
        self._model = model
        self._mappings: dict[str, mmap.mmap] = {}

    def check(self, tensor: onnx.TensorProto) -> None:
        """Raise an error unless the tensor's data exists in full at the stated place within the model's folder."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where = f"{self._model}: the external data of {tensor.name!r}"
        size = _size(tensor.data_type, tensor.dims)
        offset, length = (
            self._number(entries, key, default, where) for key, default in (("offset", 0), ("length", size))
        )
        if length != size:
            raise InputError(
                f"{where} has the stated length of {length} bytes, but its type and shape need {size}.",
                fix="write the model and its data again.",
            )
        there = len(self.mapping(entries.get("location", ""), tensor.name)) if size else 0
        if size and offset + length > there:
            raise InputError(
                f"{where} ends at byte {offset + length} of {entries['location']!r}, which has {there} bytes.",
                fix="the file is incomplete: copy it again.",
            )

    def _number(self, entries: dict[str, str], key: str, default: int, where: str) -> int:
        text = entries.get(key, str(default))
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise InputError(f"{where} has the {key} {text!r}.", fix="write the model and its data again.")
        return int(text)

    def mapping(self, location: str, tensor: str) -> mmap.mmap:
        """The file at ``location``, mapped into memory."""
        if location not in self._mappings:
            self._check_location(location, f"{self._model}: the external data of {tensor!r}")
            what = f"{self._model}: the external data {location!r} of {tensor!r}"
            self._mappings[location] = _map(self._folder / location, what)
        return self._mappings[location]

    def _check_location(self, location: str, where: str) -> None:
        fix = "move the data into the model's folder, and write that name into the model with onnx.save."
        if not location or "\0" in location:
            raise InputError(f"{where} names no file.", fix="write the model and its data again.")
        parts = location.replace("\\", "/").split("/")
        if location[0] in "/\\" or Path(location).is_absolute() or ":" in parts[0]:
            raise InputError(f"{where} is at the absolute path {location!r}, which is refused.", fix=fix)
        if ".." in parts:
            raise InputError(f"{where} is at {location!r}, which leaves the model's folder: refused.", fix=fix)
        real, folder = os.path.realpath(self._folder / location), os.path.realpath(self._folder)
        if os.path.commonpath([real, folder]) != folder:
            raise InputError(f"{where} is at {location!r}, a link that leaves the model's folder: refused.", fix=fix)


def _check_dtype(tensor: onnx.TensorProto, name: str) -> None:
    try:
        known = ir.DataType(tensor.data_type) is not ir.DataType.UNDEFINED
    except ValueError:
        known = False
    if not known or any(size < 0 for size in tensor.dims):
        raise InputError(
            f"{name}: the weight {tensor.name!r} has the type number {tensor.data_type} and the shape "
            f"{list(tensor.dims)}, which the installed onnx_ir does not support.",
            fix="pip install --upgrade onnx onnx-ir, or write the model again.",
        )


def _check_text(message: Message) -> None:
    """Raise a TypeError or a UnicodeDecodeError if a string of a message, or of one inside it, is not UTF-8 text."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in (value,) if isinstance(value, Message) else value:
                _check_text(one)
        elif field.type == field.TYPE_STRING:
            for one in (value,) if isinstance(value, (str, bytes)) else value:
                if not isinstance(one, str):
                    raise TypeError(f"{field.name} is {one!r}")


def _has_content(tensor: onnx.TensorProto) -> bool:
    return any(field.name == "raw_data" or field.name.endswith("_data") for field, _ in tensor.ListFields())


def _check_content(tensor: onnx.TensorProto, name: str) -> None:
    """Raise an error unless the content of a tensor in the model file has the length that its type and shape need."""
    try:
        ir.serde.deserialize_tensor(tensor).numpy()
    except (ValueError, TypeError, AssertionError, NotImplementedError, MemoryError, ir.serde.SerdeError) as error:
        raise InputError(
            f"{name}: the content of the weight {tensor.name!r} does not fit its type and the shape "
            f"{list(tensor.dims)}: {first_line(error)}.",
            fix="the file is damaged: write the model again.",
        ) from error


def _size(data_type: int, dims: Any) -> int:
    elements = 1
    for size in dims:
        elements *= int(size)
    return -(-elements * int(ir.DataType(data_type).bitwidth) // 8) if data_type != onnx.TensorProto.STRING else 0


def _mapped(mapping: mmap.mmap, offset: int, length: int, like: Any, name: str) -> ir.TensorProtocol:
    """A tensor of the type and shape of ``like`` whose data lies in ``mapping``."""
    dtype, shape = like.dtype, [int(size) for size in like.shape]
    if length != _size(int(dtype), shape):
        raise InputError(
            f"{name}: the weight {like.name!r} has {length} bytes, but its type and shape need "
            f"{_size(int(dtype), shape)}.",
            fix="the file is damaged: write the model again.",
        )
    data = np.frombuffer(mapping, np.uint8, length, offset) if length else np.empty(0, np.uint8)
    if dtype.bitwidth < 8:
        return ir.PackedTensor(data, dtype, shape=ir.Shape(shape), name=like.name)
    array = data.view(np.dtype(dtype.numpy()).newbyteorder("<")).reshape(shape)
    tensor = MappedTensor(array, dtype=dtype, shape=ir.Shape(shape), name=like.name)
    tensor.place = (mapping, offset, length)
    return tensor


def _map_external(model: ir.Model, files: _Files, name: str) -> None:
    def mapped(tensor: Any) -> Any:
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        size = _size(int(tensor.dtype), tensor.shape)
        mapping = files.mapping(str(tensor.location), str(tensor.name)) if size else mmap.mmap(-1, 1)
        return _mapped(mapping, tensor.offset or 0, size, tensor, name)

    for graph in all_graphs(model):
        for value in graph.initializers.values():
            value.const_value = mapped(value.const_value)
        for node in graph:
            for attribute in list(node.attributes.values()):
                if attribute.is_ref():
                    continue
                if attribute.type is ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                    node.attributes[attribute.name] = ir.AttrTensor(attribute.name, mapped(attribute.value))
                elif attribute.type is ir.AttributeType.TENSORS:
                    node.attributes[attribute.name] = ir.AttrTensors(attribute.name, [*map(mapped, attribute.value)])


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _tensors_of_graph(proto.graph)
    for function in proto.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Any) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors_of_graph(graph)
