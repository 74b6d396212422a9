"""Checks the nodes that a symbolic function added against the ONNX schemas; torch's passes crash on invalid nodes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import onnx

__all__ = ["InvalidNodeError", "check_node"]

_LISTS = ("prim::ListConstruct", "prim::TupleConstruct")


class InvalidNodeError(ValueError):
    """A node that is not valid in ONNX.

    Args:
        reason: The problem, as the rest of a sentence about the symbolic function: "adds a node ...".
        fix: The instruction for the user.
    """

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


def check_node(kind: str, inputs: Sequence[Any], attributes: Collection[str], opset: int, *, has_blocks: bool) -> None:
    """Check a node against the schema of its operator.

    Args:
        kind: The operator, such as "onnx::Squeeze". For a node of another domain, only the inputs are checked.
        inputs: The inputs of the node.
        attributes: The names of its attributes.
        opset: The version of the default domain.
        has_blocks: Whether the node has subgraphs, which become further attributes.

    Raises:
        InvalidNodeError: The operator is unknown, is newer than this opset, or does not accept these inputs or
            attributes.
    """
    domain, _, name = kind.partition("::")
    if domain != "prim" and any(value is not None and value.node().kind() in _LISTS for value in inputs):
        raise InvalidNodeError(
            f"passes a list to a node {name!r}, which takes tensors.",
            f"pass the elements: g.op({name!r}, *symbolic_helper._unpack_list(values)).",
        )
    if domain != "onnx":
        return
    if name not in _operators():
        raise InvalidNodeError(
            f"adds a node {name!r}, which is not an ONNX operator.",
            f"give a custom node a domain: g.op('mydomain::{name}', ...).",
        )
    reason = _breach(name, len(inputs), attributes, opset, has_blocks)
    if reason:
        raise InvalidNodeError(
            f"adds a node that is not valid at opset {opset}: {reason}.",
            f"change it to add nodes of opset {opset}, or request the opset it was written for (opset=11).",
        )


def _breach(name: str, inputs: int, attributes: Collection[str], opset: int, has_blocks: bool) -> str:
    try:
        schema = onnx.defs.get_schema(name, opset, "")
    except onnx.defs.SchemaError:
        return f"{name} is newer"
    unknown = sorted(set(attributes) - set(schema.attributes))
    if unknown:
        return f"{name} has no attribute {unknown[0]!r}"
    required = {key for key, attribute in schema.attributes.items() if attribute.required}
    missing = sorted(required - set(attributes))
    if missing and not has_blocks:
        return f"{name} needs the attribute {missing[0]!r}"
    if not schema.min_input <= inputs <= schema.max_input:
        return f"{name} takes {_count(schema.min_input, schema.max_input)}, not {inputs}"
    return ""


def _count(least: int, most: int) -> str:
    if least == most:
        return f"{least} input{'s' * (least != 1)}"
    return f"{least} to {most} inputs" if most < 1000 else f"{least} inputs or more"


@functools.cache
def _operators() -> frozenset[str]:
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "")
