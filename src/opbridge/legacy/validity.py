"""Checks the nodes that a symbolic function added against the ONNX schemas; torch's passes crash on invalid nodes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import onnx

from opbridge.onnx_model.opsets import NEWEST_OPSET, OLDEST_OPSET

__all__ = ["InvalidNodeError", "check_node", "is_kept", "opset_fix"]

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


def check_node(kind: str, inputs: Sequence[Any], attributes: Collection[str], opset: int, *, has_blocks: bool) -> str:
    """Check a node against the schema of its operator.

    A node of the default domain that is no ONNX operator, and attributes that its operator has at no opset, are kept as
    written, because some engines read them.

    Args:
        kind: The operator, such as "onnx::Squeeze". For a node of another domain, only the inputs are checked.
        inputs: The inputs of the node.
        attributes: The names of its attributes.
        opset: The version of the default domain.
        has_blocks: Whether the node has subgraphs, which become further attributes.

    Returns:
        A remark about what is kept although ONNX does not have it; empty for a valid node.

    Raises:
        InvalidNodeError: The node is of another opset: the operator is newer than this opset, or does not accept these
            inputs or attributes.
    """
    domain, _, name = kind.partition("::")
    if domain != "prim" and any(value is not None and value.node().kind() in _LISTS for value in inputs):
        raise InvalidNodeError(
            f"passes a list to a node {name!r}, which takes tensors.",
            f"pass the elements: g.op({name!r}, *symbolic_helper._unpack_list(values)).",
        )
    if domain != "onnx":
        return ""
    if name not in _operators():
        return (
            f"the node {name!r} has no domain and is not an ONNX operator: it is kept as written; give it a domain, "
            f"g.op('mydomain::{name}', ...), so that a body or a kernel can be declared for it"
        )
    extra = sorted(set(attributes) - _attributes(name))
    standard = set(attributes).difference(extra)
    reason = _breach(name, len(inputs), standard, opset, has_blocks)
    fitting = [version for version in _OPSETS if not _breach(name, len(inputs), standard, version, has_blocks)]
    if reason and not (extra and not fitting):
        raise InvalidNodeError(f"adds a node that is not valid at opset {opset}: {reason}.", opset_fix(opset, fitting))
    if not extra:
        return ""
    return (
        f"the node {name!r} has the attribute {extra[0]!r}, which ONNX's {name} does not have at any opset: it is kept "
        "as written; ONNX Runtime refuses it, and an engine that reads it can be given the file of --engine none"
    )


_OPSETS = range(OLDEST_OPSET, NEWEST_OPSET + 1)


def opset_fix(opset: int, fitting: Collection[int]) -> str:
    """Return the instruction for a node that is not valid at an opset but at those that fit."""
    change = f"change it to add nodes of opset {opset}"
    nearest = min(fitting, key=lambda version: (abs(version - opset), version), default=None)
    return f"{change}." if nearest is None else f"{change}, or request an opset at which it is valid (opset={nearest})."


def is_kept(name: str, attributes: Collection[str]) -> bool:
    """Return whether a node of the default domain is kept as written, although ONNX does not have it."""
    return name not in _operators() or not _attributes(name).issuperset(attributes)


@functools.cache
def _attributes(name: str) -> frozenset[str]:
    """The attributes that an operator has at any opset."""
    schemas = (schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == name)
    return frozenset(key for schema in schemas if schema.domain == "" for key in schema.attributes)


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
