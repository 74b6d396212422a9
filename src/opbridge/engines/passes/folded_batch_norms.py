"""Folds a batch normalization into the matrix product before it, also if the product is reshaped or transposed between.

``nn.Linear`` over the last of three or more axes is a MatMul and an Add. ``nn.BatchNorm1d`` needs the channels in the
second axis, so that a Transpose or a Reshape is between both. The optimizer of torch.onnx folds a batch normalization
only into the Conv, ConvTranspose or Gemm directly before it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

__all__ = ["FoldedBatchNormsPass"]

_DEFAULT_EPSILON = 1e-5
_SECOND = 1


class FoldedBatchNormsPass(ir.passes.InPlacePass):
    """Multiply the matrix and the bias of a product by the factors of the batch normalization after it."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place; its results differ by rounding. Nodes that are no longer used stay in it."""
        norms = [node for node in model.graph.all_nodes() if node.op_type == "BatchNormalization" and not node.domain]
        count = sum(_fold(node) for node in norms)
        return ir.passes.PassResult(model, count > 0)


def _fold(norm: ir.Node) -> bool:
    parameters = [_constant(value) for value in norm.inputs[1:]]
    chain = _chain_before(norm)
    if chain is None or norm.attributes.get_int("training_mode", 0) or any(one is None for one in parameters):
        return False
    product, matrix, bias, between = chain
    scale, shift, mean, variance = (np.asarray(one) for one in parameters)
    factors = scale / np.sqrt(variance + norm.attributes.get_float("epsilon", _DEFAULT_EPSILON))
    weight, offset = _tensor(norm, matrix * factors), _tensor(norm, (bias - mean) * factors + shift)
    if not all(np.isfinite(tensor.numpy()).all() for tensor in (weight, offset)):
        return False
    constants: list[ir.Value | None] = [_initializer(norm, "weight", weight), _initializer(norm, "bias", offset)]
    steps: list[tuple[str, list[ir.Value | None], dict[str, ir.Attr]]]
    if [node.op_type for node in between] == ["Reshape"]:  # To two axes, so that one Gemm does all.
        rows = _initializer(norm, "rows", ir.tensor(np.array([-1, len(matrix)], np.int64)))
        steps = [("Reshape", [rows], {}), ("Gemm", constants, {})]
    else:
        steps = [("MatMul", constants[:1], {}), ("Add", constants[1:], {})]
        steps += [(node.op_type, list(node.inputs[1:]), dict(node.attributes)) for node in between]
    value = product.inputs[0]
    made = []
    for number, (operator, others, attributes) in enumerate(steps):
        made.append(ir.node(operator, [value, *others], attributes, name=f"{norm.name}_{number}"))
        made[-1].metadata_props.update(norm.metadata_props)
        value = made[-1].outputs[0]
        value.name = f"{norm.outputs[0].name}_{number}"
    old, new = norm.outputs[0], made[-1].outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    assert norm.graph is not None
    ir.convenience.replace_nodes_and_values(norm.graph, norm, [norm], made, [old], [new])
    return True


def _chain_before(norm: ir.Node) -> tuple[ir.Node, np.ndarray, np.ndarray, list[ir.Node]] | None:
    """The product with a constant matrix whose columns a batch normalization scales; None if there is none.

    Returns:
        The MatMul, its matrix of shape (K, C), the bias that is added to it (0 if there is none), and the nodes between
        the sum and the batch normalization.
    """
    value, axis = norm.inputs[0], _SECOND
    bias: np.ndarray | None = None
    between: list[ir.Node] = []
    while value is not None and value.shape is not None and _is_used_once(value):
        node = value.producer()
        if node is None or node.domain or node.inputs[0] is None or node.inputs[0].shape is None:
            return None
        last = len(value.shape) - 1
        match node.op_type:
            case "Transpose" if bias is None:
                axis = node.attributes.get_ints("perm", range(last, -1, -1))[axis]
            case "Reshape" if bias is None and axis == last and _same_last_size(value, node.inputs[0]):
                axis = len(node.inputs[0].shape) - 1
            case "Add" if bias is None and axis == last:
                bias = _constant(node.inputs[1])
                if bias is None or bias.shape != (value.shape[-1],):
                    return None
            case "MatMul" if axis == last:
                matrix = _constant(node.inputs[1])
                if matrix is None or matrix.ndim != 2:
                    return None
                return node, matrix, np.zeros(1) if bias is None else bias, between
            case _:
                return None
        if node.op_type != "Add":
            between.insert(0, node)
        value = node.inputs[0]
    return None


def _is_used_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _same_last_size(one: ir.Value, other: ir.Value) -> bool:
    assert one.shape is not None
    assert other.shape is not None
    return len(other.shape) > 0 and isinstance(one.shape[-1], int) and one.shape[-1] == other.shape[-1]


def _constant(value: ir.Value | None) -> np.ndarray | None:
    """A constant in float64; None if a value is no constant."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy().astype(np.float64)


def _tensor(norm: ir.Node, array: np.ndarray) -> ir.TensorProtocol:
    """An array in the element type of the parameters of a batch normalization."""
    scale = norm.inputs[1]
    assert scale is not None
    assert scale.dtype is not None
    return ir.tensor(array.astype(scale.dtype.numpy()), dtype=scale.dtype)


def _initializer(norm: ir.Node, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    name = f"{norm.outputs[0].name}_{name}"
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
    assert isinstance(norm.graph, ir.Graph)
    norm.graph.register_initializer(value)
    return value
