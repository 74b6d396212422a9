"""Writes RMS normalization as a division by the root, which ONNX Runtime fuses, and not as a product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from opbridge.engines.versions import SYMBOLIC
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine

__all__ = ["RootMeanSquaresPass"]

ORDER = 16
"""This pass runs before casts are inserted around nodes without a kernel."""


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[Any]) -> RootMeanSquaresPass | None:
    """The pass for ONNX Runtime, which fuses Pow, ReduceMean, Add, Sqrt, Div and Mul, but no Reciprocal."""
    if engine.package != "onnxruntime" or not any(_normalized(node) for node in all_nodes(model)):
        return None
    return RootMeanSquaresPass()


class RootMeanSquaresPass(ir.passes.InPlacePass):
    """Replace x times ``Reciprocal(Sqrt(ReduceMean(Pow(x, 2)) + eps))``, the normalization of Llama and T5, by ``Div``.

    The quotient is rounded once where the product is rounded twice.
    """

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the changed nodes."""
        changed = []
        for node in list(all_nodes(model)):
            x = _normalized(node)
            if x is not None:
                changed.append(describe_node(node))
                _divide(node, x)
        what = "RMS normalization divides by the root, so that ONNX Runtime fuses it"
        return AdaptationResult(model, bool(changed), (Adaptation(what, tuple(changed)),) if changed else ())


def _normalized(node: ir.Node) -> ir.Value | None:
    """The number that a product normalizes; None for another node."""
    if (node.domain, node.op_type) != ("", "Mul") or SYMBOLIC in node.metadata_props:
        return None
    for x, factor in (node.inputs, reversed(node.inputs)):
        inverse = _made_by(factor, "Reciprocal")
        root = _made_by(inverse.inputs[0], "Sqrt") if inverse is not None else None
        total = _made_by(root.inputs[0], "Add") if root is not None else None
        means = [_made_by(value, "ReduceMean") for value in total.inputs] if total is not None else []
        squares = [_made_by(mean.inputs[0], "Pow") for mean in means if mean is not None]
        if any(square is not None and _is_square_of(square, x) for square in squares):
            return x
    return None


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node of this type that makes a value which nothing else reads."""
    made_by = value.producer() if value is not None else None
    if value is None or made_by is None or (made_by.domain, made_by.op_type) != ("", op_type):
        return None
    return made_by if len(value.uses()) == 1 and not value.is_graph_output() else None


def _is_square_of(power: ir.Node, x: ir.Value | None) -> bool:
    exponent = ir.convenience.get_const_tensor(power.inputs[1])
    return power.inputs[0] is x and exponent is not None and exponent.size == 1 and exponent.numpy().item() == 2


def _divide(node: ir.Node, x: ir.Value) -> None:
    inverse = next(value.producer() for value in node.inputs if value is not x)
    (old,) = node.outputs
    quotient = ir.node("Div", [x, inverse.inputs[0]], name=node.name)
    quotient.metadata_props.update(node.metadata_props)
    (new,) = quotient.outputs
    new.type, new.shape = old.type, old.shape
    new.name, old.name = old.name, f"{old.name}_product"
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph = node.graph
    graph.insert_before(node, quotient)
    graph.remove([node, inverse], safe=True)
