"""Link 3: whether OpenPPL's list has a node, with known exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opbridge.engines import refusals
from opbridge.engines.base import Refusal, RefusalKind
from opbridge.engines.openppl.listed import LISTED, LISTED_VERSION
from opbridge.engines.refusals import UNKNOWN, Reason
from opbridge.onnx_model.names import describe_operator

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "refusal_of"]

OLDEST_OPSET, NEWEST_OPSET = 11, 16
# Names and not onnx_ir.DataType, so that listing the engines does not import onnx_ir.
_EQUAL_TAKES = ("FLOAT", "INT64")


def refusal_of(node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
    """See :meth:`Engine.supports <opbridge.engines.base.Engine.supports>`."""
    return refusals.refusal_of(node, _reason(node, node.version or opset_imports.get(node.domain, 1)))


def _reason(node: ir.Node, opset: int) -> Reason | None:
    if not node.domain and opset > NEWEST_OPSET:
        return Reason(f"OpenPPL takes opsets up to {NEWEST_OPSET}, not {opset}", RefusalKind.OPSET)
    if (node.domain, node.op_type) not in LISTED:
        if node.domain:
            return UNKNOWN
        return Reason(f"OpenPPL {LISTED_VERSION} has no kernel for {describe_operator('', node.op_type)}")
    first, last = LISTED[node.domain, node.op_type]
    if not first <= opset <= last:
        return Reason(
            f"OpenPPL {LISTED_VERSION} takes {node.op_type} in models of opset {first} to {last}, and this one is of "
            f"opset {opset}",
            RefusalKind.OPSET,
        )
    if node.op_type == "Softmax" and opset >= 13 and not _is_over_the_last_axis(node):
        return Reason("OpenPPL crashes in a Softmax over an inner axis from opset 13 on")
    if node.op_type == "Equal":
        types = [value.dtype.name for value in node.inputs if value is not None and value.dtype is not None]
        other = [name.lower() for name in types if name not in _EQUAL_TAKES]
        if other:
            return Reason(f"OpenPPL reports Equal of {other[0]} as unsupported when it runs", RefusalKind.DTYPE)
    return None


def _is_over_the_last_axis(node: ir.Node) -> bool:
    axis = node.attributes.get_int("axis", -1)
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    return axis == -1 or (shape is not None and axis == len(shape) - 1)
