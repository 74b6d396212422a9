"""Multiplies vectors from the left, because ONNX Runtime computes wrong products of a transposed matrix and a vector.

It fuses a Transpose of the last two axes with the following MatMul, and loses it if the second operand is a vector:
``A.T @ v`` becomes ``A @ v``, or arbitrary numbers if A is not square.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes

__all__ = ["TransposedVectorsPass"]


class TransposedVectorsPass(ir.passes.InPlacePass):
    """Replace the product of a transposed matrix and a vector by the product of the vector and the matrix."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results."""
        modified = False
        for node in all_nodes(model):
            matrix = _transposed_for_a_vector(node)
            if matrix is not None:
                node.replace_input_with(0, node.inputs[1])
                node.replace_input_with(1, matrix)
                modified = True
        return ir.passes.PassResult(model, modified)


def _transposed_for_a_vector(node: ir.Node) -> ir.Value | None:
    """The matrix whose transpose is a MatMul's first operand, if the second operand is a vector; otherwise None."""
    if node.domain or node.op_type != "MatMul":
        return None
    first, vector = node.inputs
    transpose = first.producer() if first is not None else None
    if transpose is None or transpose.domain or transpose.op_type != "Transpose":
        return None
    order = transpose.attributes.get_ints("perm", [])
    rank = len(order)
    swaps_the_last = rank >= 2 and list(order) == [*range(rank - 2), rank - 1, rank - 2]
    is_vector = vector is not None and vector.shape is not None and len(vector.shape) == 1
    return transpose.inputs[0] if swaps_the_last and is_vector else None
