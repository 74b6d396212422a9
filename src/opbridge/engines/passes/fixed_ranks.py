"""Gives each ``Squeeze`` without axes the axes that the captured program removes, so that ranks do not depend on data.

``tensor.squeeze()`` removes the axes whose captured size is 1. A ``Squeeze`` without axes also removes an axis whose
dynamic size happens to be 1 at run time, and the nodes behind it, which count axes, then fail or reduce a wrong axis.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes

__all__ = ["FixedRanksPass"]


class FixedRanksPass(ir.passes.InPlacePass):
    """Add the axes of captured length 1 to each ``Squeeze`` without axes whose result other nodes read.

    A result that is only an output of the model stays as it is: no node counts its axes, and PyTorch's own result also
    has another rank if a dynamic size is 1.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results for dynamic sizes of 2 or more."""
        modified = False
        for node in all_nodes(model):
            if node.op_type != "Squeeze" or node.domain or len(node.inputs) > 1 or "axes" in node.attributes:
                continue
            data = node.inputs[0]
            if data is not None and data.shape is not None and node.outputs[0].uses():
                modified |= _fix(node, list(data.shape))
        return ir.passes.PassResult(model, modified)


def _fix(node: ir.Node, sizes: list[int | ir.SymbolicDim]) -> bool:
    if all(isinstance(size, int) for size in sizes):
        return False  # The axes are known from the shape.
    axes = np.asarray([axis for axis, size in enumerate(sizes) if size == 1], np.int64)
    if not axes.size:
        # Engines take an empty list of axes for no list.
        node.op_type = "Identity"
        return True
    constant = ir.node("Constant", [], {"value": ir.tensor(axes)}, name=f"{node.name}_axes")
    constant.metadata_props.update(node.metadata_props)
    constant.outputs[0].name = f"{node.name}_axes"
    assert node.graph is not None
    node.graph.insert_before(node, constant)
    node.resize_inputs(2)
    node.replace_input_with(1, constant.outputs[0])
    return True
