"""Creates the float64 reference of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.scopes import all_graphs, all_nodes
from opbridge.onnx_model.write import place_of

__all__ = ["longest_sum", "random_outputs", "random_values", "widened_model"]

_NARROW = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16))
_FLOAT64 = ir.DataType.DOUBLE
# Attributes that name an element type. stash_type is not one of them: onnx's evaluator accepts only float32 for it, and
# computes in the type of the input.
_TYPES = frozenset(("to", "dtype", "output_dtype", "softmax_precision"))


def widened_model(model: ir.Model) -> ir.Model:
    """A copy of ``model`` in which float32, float16 and bfloat16 are replaced by float64, also for inputs and outputs.

    Floating-point types of at most 8 bits and integers are not changed, because they are part of the model's design.
    """
    widened = model.clone()
    shared: dict[Any, Any] = {}
    for graph in all_graphs(widened):
        for value in graph.initializers.values():
            value.const_value = _shared_tensor(value.const_value, shared)
            _widen_type(value)
        for value in graph.inputs:
            _widen_type(value)
    for node in all_nodes(widened):
        for output in node.outputs:
            _widen_type(output)
        for attribute in list(node.attributes.values()):
            del node.attributes[attribute.name]
            changed = _attribute(node, attribute)
            node.attributes[changed.name] = changed
    return widened


def _widen_type(value: ir.Value) -> None:
    if value.dtype in _NARROW:
        value.type = _with_float64_elements(value.type)


def _with_float64_elements(type_: Any) -> Any:
    if isinstance(type_, ir.SequenceType):
        return ir.SequenceType(_with_float64_elements(type_.elem_type))
    if isinstance(type_, ir.OptionalType):
        return ir.OptionalType(_with_float64_elements(type_.elem_type))
    return ir.TensorType(_FLOAT64)


def _shared_tensor(tensor: Any, shared: dict[Any, Any]) -> Any:
    """The widened tensor; tensors that share their memory still do."""
    place = None if tensor is None else place_of(tensor)
    if place is None:
        return _tensor(tensor)
    key = (place, tensor.dtype, tuple(tensor.shape))
    if key not in shared:
        shared[key] = _tensor(tensor)
    same = shared[key]
    return tensor if same.dtype is not _FLOAT64 else ir.Tensor(same.raw, dtype=_FLOAT64, name=tensor.name)


def _tensor(tensor: Any) -> Any:
    if tensor is None or tensor.dtype not in _NARROW:
        return tensor
    return ir.Tensor(tensor.numpy().astype(np.float64), dtype=_FLOAT64, name=tensor.name)


def _attribute(node: ir.Node, attribute: ir.Attr) -> ir.Attr:
    if attribute.is_ref():
        return attribute
    if attribute.type is ir.AttributeType.TENSOR:
        return ir.AttrTensor(attribute.name, _tensor(attribute.as_tensor()))
    if node.op_type == "Constant" and attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return ir.AttrTensor("value", ir.tensor(np.asarray(attribute.value, np.float64)))
    if (
        attribute.name in _TYPES
        and attribute.type is ir.AttributeType.INT
        and attribute.value in set(map(int, _NARROW))
    ):
        return ir.AttrInt64(attribute.name, int(_FLOAT64))
    return attribute


def longest_sum(model: ir.Model) -> int:
    """The number of terms of the longest sum in the model, estimated from the shapes of its weights."""
    return max((_terms(value) for value in model.graph.initializers.values()), default=1)


def _terms(value: ir.Value) -> int:
    shape = [int(size) for size in value.const_value.shape] if value.const_value is not None else []
    return int(np.prod(shape)) // max(1, min(shape)) if len(shape) > 1 else 1


def random_outputs(model: ir.Model) -> frozenset[str]:
    """The names of the outputs that depend on a draw of random numbers."""
    return random_values(model) & {str(value.name) for value in model.graph.outputs}


def random_values(model: ir.Model) -> frozenset[str]:
    """The names of the values that depend on a draw of random numbers."""
    random: set[ir.Value] = set()
    for node in model.graph.all_nodes():
        drawn = node.op_type in _DRAWS and not node.domain
        drawn |= any(value in random for value in _read_by(node))
        if drawn:
            random.update(node.outputs)
    return frozenset(str(value.name) for value in random)


_DRAWS = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
)


def _read_by(node: ir.Node) -> Iterator[ir.Value]:
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type is not ir.AttributeType.GRAPH:
            continue
        for inner in attribute.as_graph().all_nodes():
            yield from (value for value in inner.inputs if value is not None)
            yield from inner.outputs
