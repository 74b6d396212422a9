"""Writes products of a transposed matrix and a vector in another form, because ONNX Runtime computes them wrong.

It fuses a Transpose of the last two axes with the following MatMul, and loses it if the second operand is a vector:
``A.T @ v`` becomes ``A @ v``, or arbitrary numbers if A is not square. It also fuses multiplications by numbers between
the two.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes

__all__ = ["TransposedVectorsPass"]


_KEPT = frozenset({"Cast", "Identity", "Reshape"})
"""Operators that ONNX Runtime removes or moves if they change nothing."""


class TransposedVectorsPass(ir.passes.InPlacePass):
    """Replace the product of a transposed matrix and a vector: ``v @ A``, or ``2 * A.T @ v[:, None]``."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results."""
        modified = False
        for node in list(all_nodes(model)):
            if node.domain or node.op_type != "MatMul":
                continue
            first, vector = node.inputs
            if first is None or vector is None or vector.shape is None or len(vector.shape) != 1:
                continue
            matrix = _transposed(first)
            if matrix is not None:
                node.replace_input_with(0, vector)
                node.replace_input_with(1, matrix)
            elif _is_scaled_transpose(first):
                _multiply_by_a_column(node, first, vector)
            else:
                continue
            modified = True
        return ir.passes.PassResult(model, modified)


def _transposed(value: ir.Value) -> ir.Value | None:
    """The matrix of which a value is the transpose; None if it is not one."""
    node = value.producer()
    if node is None or node.domain or node.op_type != "Transpose":
        return None
    order = node.attributes.get_ints("perm", [])
    rank = len(order)
    swaps_the_last = rank >= 2 and list(order) == [*range(rank - 2), rank - 1, rank - 2]
    return node.inputs[0] if swaps_the_last else None


def _is_scaled_transpose(value: ir.Value | None) -> bool:
    """Whether a value is a transposed matrix after multiplications by a number."""
    while value is not None and _transposed(value) is None:
        node = value.producer()
        if node is None or node.domain:
            return False
        if node.op_type in ("Mul", "Div"):
            matrices = [one for one in node.inputs if one is None or not _is_number(one)]
            value = matrices[0] if len(matrices) == 1 else None
        else:
            value = node.inputs[0] if node.op_type in _KEPT else None
    return value is not None


def _is_number(value: ir.Value) -> bool:
    return value.shape is not None and all(size == 1 for size in value.shape)


def _multiply_by_a_column(node: ir.Node, matrix: ir.Value, vector: ir.Value) -> None:
    (old,) = node.outputs
    last = ir.node("Constant", [], {"value_ints": [-1]}, name=f"{node.name}_axis")
    column = ir.node("Unsqueeze", [vector, last.outputs[0]], name=f"{node.name}_column")
    product = ir.node("MatMul", [matrix, column.outputs[0]], name=node.name)
    result = ir.node("Squeeze", [product.outputs[0], last.outputs[0]], name=f"{node.name}_squeeze")
    (new,) = result.outputs
    new.name, new.type, new.shape = old.name, old.type, old.shape
    made = [last, column, product, result]
    for one in made:
        one.metadata_props.update(node.metadata_props)
        for value in one.outputs:
            value.name = value.name or f"{one.name}_output"
    assert node.graph is not None
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], made, [old], [new])
