"""Replaces negative axes of reductions, because ONNX Runtime ignores a negative axis if the input is empty.

Its ``ReduceSum`` of a tensor of shape [0, 4, 5] over axis -1 has shape [0, 4, 5], and over axis 2 shape [0, 4].
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.scopes import scopes

__all__ = ["CountedAxesPass"]


class CountedAxesPass(ir.passes.InPlacePass):
    """Replace negative axes of reductions by nonnegative axes if the input may be empty and its rank is known."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results."""
        modified = False
        for graph in scopes(model):
            for node in list(ir.traversal.RecursiveGraphIterator(graph)):
                data = node.inputs[0] if node.inputs and not node.domain else None
                if data is None or data.shape is None or not _may_be_empty(data.shape):
                    continue
                if node.op_type.startswith("Reduce"):
                    modified |= _count_input(node, data.shape, isinstance(graph, ir.Function))
                elif node.op_type in ("ArgMax", "ArgMin"):
                    modified |= _count_attribute(node, data.shape)
        return ir.passes.PassResult(model, modified)


def _count_attribute(node: ir.Node, shape: ir.Shape) -> bool:
    axis = node.attributes.get_int("axis", 0)
    if axis < 0:
        node.attributes["axis"] = ir.AttrInt64("axis", axis + len(shape))
    return axis < 0


def _count_input(node: ir.Node, shape: ir.Shape, in_function: bool) -> bool:
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = ir.convenience.get_const_tensor(axes) if axes is not None else None
    if tensor is None or not (tensor.numpy() < 0).any():
        return False
    counted = ir.tensor(np.asarray(tensor.numpy() % len(shape), np.int64))
    node.replace_input_with(1, _constant(node, counted, in_function))
    return True


def _constant(node: ir.Node, tensor: ir.TensorProtocol, in_function: bool) -> ir.Value:
    """A constant input of a node: an initializer, or the result of a Constant in a function, which has none."""
    name = f"{node.name}_axes"
    if not in_function and isinstance(node.graph, ir.Graph):
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
        node.graph.register_initializer(value)
        return value
    constant = ir.node("Constant", [], {"value": tensor}, name=name)
    constant.metadata_props.update(node.metadata_props)
    constant.outputs[0].name = name
    assert node.graph is not None
    node.graph.insert_before(node, constant)
    return constant.outputs[0]


def _may_be_empty(shape: ir.Shape) -> bool:
    return len(shape) > 0 and any(not isinstance(size, int) or size == 0 for size in shape)
