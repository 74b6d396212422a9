"""The names of nodes and operators in messages and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["describe_node", "describe_operator"]


def describe_operator(domain: str, op_type: str) -> str:
    """The operator as ``"domain::Op"``; the standard domain is written ``"ai.onnx"``."""
    return f"{domain or 'ai.onnx'}::{op_type}"


def describe_node(node: ir.Node) -> str:
    """The node's name, or for an unnamed node its operator and first output."""
    named = next((value.name for value in node.outputs if value.name), None)
    return node.name or (f"{node.op_type} -> {named}" if named else node.op_type)
