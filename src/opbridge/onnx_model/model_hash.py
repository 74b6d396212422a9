"""A hash of an ONNX model, whatever file it is in: a bundle is compared only with the model that it was made from."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

__all__ = ["model_hash"]

_LARGE = 1024


def model_hash(model: ir.Model) -> str:
    """sha256 over the model without its large weights, then over these weights by name."""
    light = model.clone()
    large: dict[str, ir.TensorProtocol] = {}
    for name, value in light.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _LARGE and tensor.dtype is not ir.DataType.STRING:
            large[name], value.const_value = tensor, None
    # A value of an initializer without a tensor can't be written: it becomes an input.
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
            # A mapped weight would otherwise stay in memory when it is read.
            release()
    return digest.hexdigest()
