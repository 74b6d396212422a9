"""Writes float64 factors of matrix products as vectors, because ONNX Runtime fuses a scalar as a float32 attribute.

Its FusedMatMul stores a scalar factor in an attribute with 24 of the 53 bits of the significand.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from opbridge.onnx_model.scopes import scopes

__all__ = ["VectorScalesPass"]

_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "Gemm"})


class VectorScalesPass(ir.passes.InPlacePass):
    """Write the scalar float64 constants of ``Mul`` and ``Div`` as vectors, in models with matrix products."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results."""
        modified = False
        for graph in scopes(model):
            nodes = list(ir.traversal.RecursiveGraphIterator(graph))
            if not any(node.op_type in _PRODUCTS and not node.domain for node in nodes):
                continue
            for node in nodes:
                if node.op_type in ("Mul", "Div") and not node.domain:
                    modified |= _lift(node)
        return ir.passes.PassResult(model, modified)


def _lift(node: ir.Node) -> bool:
    for position, (value, other) in enumerate(zip(node.inputs, reversed(node.inputs), strict=True)):
        tensor = ir.convenience.get_const_tensor(value) if value is not None else None
        if tensor is None or tensor.dtype != ir.DataType.DOUBLE or tensor.size != 1 or other is None:
            continue
        if other.shape is None or len(tensor.shape) > len(other.shape):
            continue
        sizes = list(other.shape)
        long = [axis for axis, size in enumerate(sizes) if isinstance(size, int) and size > 1]
        if long:
            vector = (
                tensor.numpy().reshape(-1).repeat(sizes[long[-1]]).reshape([-1] + [1] * (len(sizes) - 1 - long[-1]))
            )
            node.replace_input_with(position, _put(node, "Constant", [], {"value": ir.tensor(vector)}))
            return True
        if sizes and not isinstance(sizes[-1], int):
            length = _put(node, "Shape", [other], {"start": -1})
            node.replace_input_with(position, _put(node, "Expand", [value, length], {}))
            return True
    return False


def _put(before: ir.Node, operator: str, inputs: list[ir.Value], attributes: dict[str, Any]) -> ir.Value:
    """Insert a node before another, and return its output."""
    made = ir.node(operator, inputs, attributes, name=f"{before.name}_{operator.lower()}")
    made.metadata_props.update(before.metadata_props)
    (value,) = made.outputs
    value.name = f"{before.name}_{operator.lower()}"
    assert before.graph is not None
    before.graph.insert_before(before, made)
    return value
