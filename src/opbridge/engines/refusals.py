"""The one refusal whose words are the same in every engine: that it has never heard of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbridge.engines.base import Refusal
from opbridge.onnx_model.names import describe_node, describe_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["is_unknown_operator", "unknown_operator"]


def unknown_operator(node: ir.Node) -> Refusal:
    """What an engine answers that has no operator of this name, in any version or type.

    It matters which refusal this is: only then does a model-local function of that name run in its place. An operator
    that the engine knows wins over the function, even if it has no kernel for the types.
    """
    operator = describe_operator(node.domain, node.op_type)
    return Refusal(describe_node(node), operator, f"no kernel for {operator}")


def is_unknown_operator(refusal: Refusal) -> bool:
    """Whether the engine has no operator of this name at all (see :func:`unknown_operator`)."""
    return refusal.reason == f"no kernel for {refusal.operator}"
