"""Computes scatters of 16-bit floats with a reduction in float32.

A sum of many such numbers loses digits at each step, and ONNX Runtime's kernels for these types fail at run time.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_nodes

__all__ = ["WideScatterPass"]

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_DATA, _UPDATES = 0, 2


class WideScatterPass(ir.passes.InPlacePass):
    """Insert casts around each ``ScatterElements`` and ``ScatterND`` of 16-bit floats that has a reduction."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place; its results differ only by rounding."""
        modified = False
        for node in all_nodes(model):
            if node.op_type in ("ScatterElements", "ScatterND") and not node.domain and _is_narrow(node):
                _widen(node)
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_narrow(node: ir.Node) -> bool:
    reduction = node.attributes.get("reduction")
    data = node.inputs[_DATA]
    return reduction is not None and reduction.as_string() != "none" and data is not None and data.dtype in _HALVES


def _widen(node: ir.Node) -> None:
    (output,) = node.outputs
    narrow = node.inputs[_DATA].dtype  # type: ignore[union-attr]
    for position in (_DATA, _UPDATES):
        cast = _cast(node.inputs[position], ir.DataType.FLOAT, node)  # type: ignore[arg-type]
        node.graph.insert_before(node, cast)  # type: ignore[union-attr]
        node.replace_input_with(position, cast.outputs[0])
    back = _cast(output, narrow, node)  # type: ignore[arg-type]
    (restored,) = back.outputs
    restored.name, output.name = output.name, f"{output.name}_wide"
    output.replace_all_uses_with(restored, replace_graph_outputs=True)
    back.replace_input_with(0, output)
    node.graph.insert_after(node, back)  # type: ignore[union-attr]
    output.type = ir.TensorType(ir.DataType.FLOAT)


def _cast(value: ir.Value, to: ir.DataType, node: ir.Node) -> ir.Node:
    made = ir.node("Cast", [value], {"to": int(to)}, name=f"{node.name}_cast")
    made.metadata_props.update(node.metadata_props)
    (result,) = made.outputs
    result.name = f"{value.name}_{to.name.lower()}"
    result.type, result.shape = ir.TensorType(to), value.shape
    return made
