"""The names of nodes and operators in messages and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["KEPT_DOMAIN", "describe_node", "describe_operator"]


KEPT_DOMAIN = "opbridge.kept"
"""The domain, until the model is finished, of nodes of the standard domain that are written as they are though ONNX
does not have them."""


def describe_operator(domain: str, op_type: str) -> str:
    """The operator as ``"domain::Op"``; the standard domain is written ``"ai.onnx"``."""
    return f"{domain or 'ai.onnx'}::{op_type}"


def describe_node(node: ir.Node) -> str:
    """The node's name, or for an unnamed node its operator and first output."""
    named = next((value.name for value in node.outputs if value.name), None)
    return node.name or (f"{node.op_type} -> {named}" if named else node.op_type)
