"""The one refusal whose words are the same in every engine: that it has never heard of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbridge.engines.base import Refusal

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["describe_node", "describe_operator", "is_unknown_operator", "unknown_operator"]


def describe_operator(domain: str, op_type: str) -> str:
    """``"domain::Op"``; the standard domain is written ``"ai.onnx"``."""
    return f"{domain or 'ai.onnx'}::{op_type}"


def describe_node(node: ir.Node) -> str:
    """The node's name; one that has none is called by its first output."""
    named = next((value.name for value in node.outputs if value.name), None)
    return node.name or (f"{node.op_type} -> {named}" if named else node.op_type)


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
