"""The refusal that is the same for every engine: it has no operator of this name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbridge.engines.base import Refusal
from opbridge.onnx_model.names import describe_node, describe_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["unknown_operator"]


def unknown_operator(node: ir.Node) -> Refusal:
    """The refusal of a node by an engine that has no operator of this name, in any version or for any type."""
    operator = describe_operator(node.domain, node.op_type)
    return Refusal(describe_node(node), operator, f"no kernel for {operator}", is_unknown=True)
