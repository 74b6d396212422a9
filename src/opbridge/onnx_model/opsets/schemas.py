"""The schemas of the ONNX standard, and checks of nodes against them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

__all__ = [
    "allowed_types",
    "attribute_default",
    "breaches",
    "changed_at",
    "find_schema",
    "formals",
    "is_standard",
    "mistyped",
    "type_name",
]

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


def is_standard(node: ir.Node) -> bool:
    """Whether the node is in the standard domain."""
    return node.domain in ("", "ai.onnx")


@functools.cache
def find_schema(op_type: str, opset: int) -> Any:
    """The operator's schema at ``opset``; None if the operator does not exist or is deprecated."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


@functools.cache
def changed_at(op_type: str, opset: int) -> bool:
    """Whether ``opset`` added, changed or removed the operator."""
    try:
        return bool(onnx.defs.get_schema(op_type, opset, "").since_version == opset)
    except onnx.defs.SchemaError:
        return False


def attribute_default(schema: Any, name: str) -> Any:
    """The default of an attribute, or None."""
    formal = schema.attributes.get(name)
    if formal is None or not formal.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(formal.default_value)
    return value.decode() if isinstance(value, bytes) else value


def type_name(type_: Any) -> str:
    """A type in the form of schemas: ``"tensor(float)"``, ``"seq(tensor(int64))"``; empty if it is not known."""
    if isinstance(type_, ir.SequenceType):
        return f"seq({inner})" if (inner := type_name(type_.elem_type)) else ""
    if isinstance(type_, ir.OptionalType):
        return f"optional({inner})" if (inner := type_name(type_.elem_type)) else ""
    if isinstance(type_, ir.TensorType) and type_.dtype is not ir.DataType.UNDEFINED:
        return f"tensor({type_.dtype.name.lower()})"
    return ""


def formals(values: Any, parameters: Any) -> Iterator[tuple[int, ir.Value, Any]]:
    """The position, the value and the formal parameter of each present value."""
    for position, value in enumerate(values):
        if value is not None and parameters and (position < len(parameters) or parameters[-1].option == _VARIADIC):
            yield position, value, parameters[min(position, len(parameters) - 1)]


def mistyped(node: ir.Node, schema: Any) -> list[tuple[str, int, ir.Value, str]]:
    """The inputs and outputs with types that the schema does not allow: (kind, position, value, type variable)."""
    found = []
    for kind, values, parameters in (("input", node.inputs, schema.inputs), ("output", node.outputs, schema.outputs)):
        for position, value, formal in formals(values, parameters):
            name = type_name(value.type)
            if name and name not in allowed_types(schema, formal.type_str):
                found.append((kind, position, value, formal.type_str))
    return found


@functools.cache
def _constraints(op_type: str, since_version: int) -> dict[str, frozenset[str]]:
    schema = find_schema(op_type, since_version)
    return {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints}


def allowed_types(schema: Any, variable: str) -> frozenset[str]:
    """The types that the schema allows for a type variable."""
    return _constraints(schema.name, schema.since_version).get(variable, frozenset((variable,)))


def breaches(node: ir.Node, schema: Any) -> str | None:
    """How the node violates the schema apart from types: an unknown attribute, input or output; None if it does not."""
    for name in node.attributes:
        if name not in schema.attributes:
            return f"its attribute {name!r} is newer"
    for name, formal in schema.attributes.items():
        if formal.required and name not in node.attributes:
            return f"its attribute {name!r} was required"
    for kind, values, parameters in (("input", node.inputs, schema.inputs), ("output", node.outputs, schema.outputs)):
        last = max((position for position, value in enumerate(values) if _is_present(kind, value)), default=-1)
        variadic = bool(parameters) and parameters[-1].option == _VARIADIC
        if last >= len(parameters) and not variadic:
            return f"it has {last + 1} {kind}s, of {len(parameters)}"
        if kind == "input":
            for position, formal in enumerate(parameters):
                given = position < len(values) and values[position] is not None
                if not given and formal.option not in (_OPTIONAL, _VARIADIC):
                    return f"its input {formal.name!r} was required"
    return None


def _is_present(kind: str, value: Any) -> bool:
    return value is not None and (kind == "input" or bool(value.name))
