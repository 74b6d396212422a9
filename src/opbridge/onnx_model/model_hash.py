"""A hash of an ONNX model, independent of its file, which shows whether a bundle was made from a given model."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

__all__ = ["model_hash"]

_LARGE = 1024


def model_hash(model: ir.Model) -> str:
    """The SHA-256 of the model without its large weights, followed by those weights sorted by name."""
    light = model.clone()
    large: dict[str, ir.TensorProtocol] = {}
    for name, value in light.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _LARGE and tensor.dtype is not ir.DataType.STRING:
            large[name], value.const_value = tensor, None
    # An initializer without a tensor cannot be serialized, so it becomes an input.
    for name in large:
        value = light.graph.initializers.pop(name)
        if value not in light.graph.inputs:
            light.graph.inputs.append(value)
    digest = hashlib.sha256(ir.serde.serialize_model(light).SerializeToString(deterministic=True))
    for name in sorted(large):
        tensor = large[name]
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(memoryview(tensor.tobytes()))
        release = getattr(tensor, "release", None)
        if release is not None:
            # Otherwise the pages of a mapped weight would stay in memory after they are read.
            release()
    return digest.hexdigest()
