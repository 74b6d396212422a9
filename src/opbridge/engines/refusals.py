"""How engines state a refusal: a reason that is remembered per distinct question, and the refusal of one node."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from opbridge.engines.base import Refusal, RefusalKind
from opbridge.onnx_model.names import describe_node, describe_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["UNKNOWN", "Reason", "first_version", "refusal_of", "version_problem"]


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why an engine refuses every node that asks the same question.

    Attributes:
        text: The reason in one line.
        kind: What the engine objects to.
        missing_dtypes: The dtypes without a kernel, if the element type is the only problem.
    """

    text: str
    kind: RefusalKind = RefusalKind.OTHER
    missing_dtypes: tuple[str, ...] = ()


UNKNOWN = Reason("no kernel", RefusalKind.UNKNOWN_OPERATOR)
"""The reason of an engine that has no operator of this name."""


def refusal_of(node: ir.Node, reason: Reason | None) -> Refusal | None:
    """The refusal of a node; None without a reason.

    Args:
        node: The node.
        reason: Why the engine refuses it; None if it takes it.
    """
    if reason is None:
        return None
    operator = describe_operator(node.domain, node.op_type)
    text = f"no kernel for {operator}" if reason is UNKNOWN else reason.text
    return Refusal(describe_node(node), operator, text, reason.missing_dtypes, kind=reason.kind)


def version_problem(engine: str, newest_opset: int, op_type: str, opset: int) -> Reason | None:
    """Why a node of the standard domain is not valid in its model's opset, for an engine that does not check it.

    Args:
        engine: The engine and its version, as in messages.
        newest_opset: The newest version of the standard domain that the engine knows.
        op_type: The node's operator.
        opset: The opset that the model imports.

    Returns:
        None if the node is valid, and also if the standard has no operator of this name in any version.
    """
    import onnx

    if opset > newest_opset:
        return Reason(f"{engine} takes opsets up to {newest_opset}, not {opset}", RefusalKind.OPSET)
    try:
        onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        first = first_version(op_type)
        if first is None:
            return None
        was = f"is new in opset {first}" if first > opset else "has been removed from the standard"
        return Reason(f"ai.onnx::{op_type} {was}, and the model is of opset {opset}", RefusalKind.OPSET)
    return None


def first_version(op_type: str) -> int | None:
    """The first opset that has an operator of the standard domain; None if there is no such operator."""
    import onnx

    schemas = onnx.defs.get_all_schemas_with_history()
    return min(
        (schema.since_version for schema in schemas if (schema.name, schema.domain) == (op_type, "")), default=None
    )
