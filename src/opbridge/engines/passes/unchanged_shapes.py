"""Removes Reshape and Expand nodes that change nothing.

Models give a tensor the shape that it has, as in ``attention(...).reshape(batch, -1, length, size)``. With a -1 in the
shape, or with dynamic sizes, the optimizer that torch.onnx runs does not see it; the shapes of the captured program do.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes

__all__ = ["UnchangedShapesPass"]


class UnchangedShapesPass(ir.passes.InPlacePass):
    """Remove each Reshape and Expand whose result has the known shape of its input.

    A result that is an output of a graph stays, because it needs a node of its own.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results; the shapes may remain as unused constants."""
        modified = False
        for node in all_nodes(model):
            if node.op_type not in ("Reshape", "Expand") or node.domain or node.outputs[0].is_graph_output():
                continue
            data = node.inputs[0]
            if data is not None and _is_known(data.shape) and data.shape == node.outputs[0].shape:
                node.outputs[0].replace_all_uses_with(data)
                assert node.graph is not None
                node.graph.remove(node, safe=True)
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_known(shape: ir.Shape | None) -> bool:
    return shape is not None and all(isinstance(size, int) or size.value is not None for size in shape)
