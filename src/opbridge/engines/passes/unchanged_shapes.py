"""Removes Reshape and Expand nodes that change nothing, and Expand nodes before others that broadcast.

Models give a tensor the shape that it has, as in ``attention(...).reshape(batch, -1, length, size)``. With a -1 in the
shape, or with dynamic sizes, the optimizer that torch.onnx runs does not see it; the shapes of the captured program do.
``torch.ones_like(x) + x`` expands a number that the addition would broadcast.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes
from opbridge.onnx_model.shapes import are_equal

__all__ = ["UnchangedShapesPass"]


class UnchangedShapesPass(ir.passes.InPlacePass):
    """Remove each Reshape and Expand whose result has the known shape of its input, or an Expand that is not needed.

    A result that is an output of a graph stays, because it needs a node of its own.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results; the shapes may remain as unused constants."""
        modified = False
        for node in all_nodes(model):
            if node.op_type not in ("Reshape", "Expand") or node.domain or node.outputs[0].is_graph_output():
                continue
            data = node.inputs[0]
            if data is not None and (are_equal(data.shape, node.outputs[0].shape) or _is_broadcast_anyway(node)):
                node.outputs[0].replace_all_uses_with(data)
                assert node.graph is not None
                node.graph.remove(node, safe=True)
                modified = True
        return ir.passes.PassResult(model, modified)


_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_BROADCASTING = frozenset(["Add", "And", "Div", "Max", "Min", "Mul", "Or", "Pow", "Sub", "Where", "Xor", *_COMPARISONS])


def _is_broadcast_anyway(node: ir.Node) -> bool:
    """Whether each reader of an Expand node's result has another operand of that shape."""
    (result,) = node.outputs
    return node.op_type == "Expand" and all(
        reader.op_type in _BROADCASTING
        and not reader.domain
        and any(
            value is not None and value is not result and are_equal(value.shape, result.shape)
            for value in reader.inputs
        )
        for reader, _ in result.uses()
    )
