"""Converts attributes that are lists of strings to tensors, because ONNX Runtime does not pass them to kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["TensorsForStringListsPass"]


ORDER = 11
"""This pass runs after the renaming of nodes that run their body, which keep their attributes."""


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> TensorsForStringListsPass | None:
    """The pass for every engine that loads a kernel with such an attribute."""
    names = {
        (kernel.domain, kernel.name): {attribute.name for attribute in kernel.attributes if attribute.kind == "strings"}
        for kernel in kernels
    }
    affected = {operator: attributes for operator, attributes in names.items() if attributes}
    return TensorsForStringListsPass(affected) if affected else None


class TensorsForStringListsPass(ir.passes.InPlacePass):
    """Replace each list of strings among the attributes of kernels' nodes by a one-dimensional tensor of strings.

    The C API of ONNX Runtime reads attributes of type int, float and string, lists of the first two, and tensors
    (``KernelInfoGetAttribute_*``); it reports a list of strings as missing.

    Args:
        attributes: The names of such attributes by (domain, name) of the operator.
    """

    def __init__(self, attributes: dict[tuple[str, str], set[str]]) -> None:
        super().__init__()
        self._attributes = attributes

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the changed nodes."""
        changed: dict[str, list[str]] = {}
        for node in all_nodes(model):
            function = model.functions.get(node.op_identifier())
            for name in sorted(self._attributes.get((node.domain, node.op_type), ())):
                given = node.attributes.get(name)
                # The function body reads the attribute in the declared form.
                if given is None or not _is_string_list(given) or (function and name in function.attributes):
                    continue
                node.attributes[name] = ir.AttrTensor(name, _tensor(given))
                changed.setdefault(describe_operator(node.domain, node.op_type), []).append(describe_node(node))
        adaptations = tuple(
            Adaptation(f"{name} gets its list of strings as a tensor of strings", tuple(nodes), name)
            for name, nodes in changed.items()
        )
        return AdaptationResult(model, bool(changed), adaptations)


def _is_string_list(attribute: ir.Attr) -> bool:
    """Whether an attribute is a list of strings, or an empty list, whose type is not known."""
    if attribute.is_ref():
        return False
    return attribute.type == ir.AttributeType.STRINGS or (
        attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS) and not attribute.value
    )


def _tensor(attribute: ir.Attr) -> ir.StringTensor:
    texts = np.array([text.encode() for text in attribute.value], dtype=object)
    return ir.StringTensor(texts, shape=ir.Shape([len(texts)]))
