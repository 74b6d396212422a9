"""Whether the standard has the nodes that a symbolic function made; torch's passes crash on others."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import onnx

__all__ = ["InvalidNodeError", "check_node"]

_LISTS = ("prim::ListConstruct", "prim::TupleConstruct")


class InvalidNodeError(ValueError):
    """A node of the standard domain that the standard does not have.

    Args:
        reason: What is wrong, as the rest of a sentence: "makes a node ...".
        fix: What to do about it.
    """

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


def check_node(kind: str, inputs: Sequence[Any], attributes: Collection[str], opset: int, *, has_blocks: bool) -> None:
    """Check a node against the schema of its operator.

    Args:
        kind: "onnx::Squeeze"; of a node of another domain only the inputs are looked at.
        inputs: The values that it takes.
        attributes: Their names.
        opset: The version of the standard domain.
        has_blocks: Whether it has subgraphs, which become further attributes.

    Raises:
        InvalidNodeError: The operator is unknown, or not at this opset, or not with these inputs and attributes.
    """
    domain, _, name = kind.partition("::")
    if domain != "prim" and any(value is not None and value.node().kind() in _LISTS for value in inputs):
        raise InvalidNodeError(
            f"gives a list to a node {name!r}, and a node takes tensors.",
            f"give it the elements: g.op({name!r}, *symbolic_helper._unpack_list(values)).",
        )
    if domain != "onnx":
        return
    if name not in _operators():
        raise InvalidNodeError(
            f"makes a node {name!r}, which ONNX does not have.",
            f"a node of one's own has a domain: g.op('mydomain::{name}', ...).",
        )
    reason = _breach(name, len(inputs), attributes, opset, has_blocks)
    if reason:
        raise InvalidNodeError(
            f"makes a node that is not valid at opset {opset}: {reason}.",
            f"let it make what opset {opset} has, or ask for the opset that it is written for (opset=11).",
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
