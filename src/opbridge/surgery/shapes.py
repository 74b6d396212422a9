"""Infers the shapes of a model's values from its declared shapes."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from opbridge.onnx_model.infer import without_weights
from opbridge.surgery.dimensions import Size, sizes_of

__all__ = ["infer_again", "refine_shapes"]


def refine_shapes(model: ir.Model) -> None:
    """Store the types and sizes that can be inferred, in place; computed shapes are evaluated too.

    Declared sizes are kept. Subgraphs are included, functions are not.
    """
    light = without_weights(model)
    try:
        inferred = ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(light), data_prop=True))
    except (onnx.shape_inference.InferenceError, ir.serde.SerdeError, ValueError):
        # An inconsistent model is rejected by the later check.
        return
    for known, node in zip(inferred.graph.all_nodes(), model.graph.all_nodes(), strict=True):
        for found, value in zip(known.outputs, node.outputs, strict=True):
            _refine(value, found)
    for found, value in zip(inferred.graph.outputs, model.graph.outputs, strict=True):
        _refine(value, found)


def _refine(value: ir.Value, found: ir.Value) -> None:
    value.type = value.type or found.type
    sizes, stated = sizes_of(found), sizes_of(value)
    if sizes is None:
        return
    if stated is None:
        value.shape = ir.Shape([_named(size) for size in sizes])
    elif len(stated) == len(sizes) and None in stated:
        value.shape = ir.Shape([_named(new) if old is None else old for old, new in zip(stated, sizes, strict=True)])


def _named(size: Size) -> Size:
    # The name unk__3 is onnx's placeholder for an unknown size; it differs between runs.
    return None if isinstance(size, str) and size.startswith("unk__") else size


def infer_again(model: ir.Model) -> None:
    """Infer every size that follows from the inputs again, in place; output sizes of custom nodes are kept."""
    for node in model.graph.all_nodes():
        if not node.domain or node.op_identifier() in model.functions:
            for value in node.outputs:
                if not value.is_graph_output():
                    value.shape = None
    refine_shapes(model)
