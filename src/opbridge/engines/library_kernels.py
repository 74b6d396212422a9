"""Kernels that an engine calls from Python: the description of a call as JSON data, and the call itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge.errors import EngineError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.kernels.library import KernelLibrary

if TYPE_CHECKING:
    import onnx

__all__ = ["LibraryKernel", "attributes_of", "library_kernel"]

LibraryKernel = Callable[[Sequence["np.ndarray | None"]], Sequence[np.ndarray]]
"""A function of one array per input (None if it is left out) that returns one array per output."""


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes as JSON data."""
    return {attribute.name: _data(attribute) for attribute in node.attribute}


def library_kernel(
    engine: str, description: Mapping[str, Any], libraries: Sequence[KernelLibrary], threads: int
) -> LibraryKernel:
    """The kernel of a node.

    Args:
        engine: The engine's name, for messages.
        description: ``target``, ``node`` (its name), ``attributes`` from :func:`attributes_of`, and ``outputs``, one
            item per output.
        libraries: The libraries to search for the kernel.
        threads: The number of threads of a call.

    Raises:
        EngineError: No library has the kernel.
    """
    target = description["target"]
    library = next((one for one in libraries if target in {o.target for o in one.operators}), None)
    if library is None:
        raise EngineError(
            f"{engine}'s model calls the kernel of {target}, at node {description['node']!r}, but no library with it "
            "is loaded.",
            fix="load the bundle with opbridge.load, or pass its library.",
        )
    kinds = {attribute.name: attribute.kind for attribute in library.operator(target).attributes}
    attributes = {
        name: _array(value) if kinds[name] == "tensor" else value
        for name, value in description["attributes"].items()
        if name in kinds
    }
    return functools.partial(_call, library, target, attributes, len(description["outputs"]), threads)


def _call(
    library: KernelLibrary,
    target: str,
    attributes: Mapping[str, Any],
    count: int,
    threads: int,
    arrays: Sequence[np.ndarray | None],
) -> Sequence[np.ndarray]:
    return library.run(target, arrays, attributes, output_count=count, threads=threads)


def _array(data: Mapping[str, Any]) -> np.ndarray:
    return np.array(data["values"], numpy_dtype(data["dtype"])).reshape(data["shape"])


def _data(attribute: onnx.AttributeProto) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        array = onnx.numpy_helper.to_array(value)
        return {"dtype": array.dtype.name, "shape": list(array.shape), "values": array.reshape(-1).tolist()}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float):
        return value
    return [item.decode() if isinstance(item, bytes) else item for item in value]
