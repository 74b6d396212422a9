"""For engines that take no model-local functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opbridge.engines.refusals import describe_node, describe_operator
from opbridge.passes.adaptation import Adaptation, AdaptationResult

if TYPE_CHECKING:
    from onnx_ir import Model

    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["InlineFunctionsPass"]


ORDER = 20


def for_engine(model: Model, engine: Engine, kernels: Sequence[KernelOperator]) -> InlineFunctionsPass | None:
    """For engines that take no functions."""
    return InlineFunctionsPass() if model.functions and not engine.takes_functions else None


class InlineFunctionsPass(ir.passes.InPlacePass):
    """Replace every call of a model-local function by the function's nodes."""

    def call(self, model: Model) -> AdaptationResult:
        """Change ``model`` in place; the result says which calls there were of each function."""
        calls: dict[str, list[str]] = {}
        for node in model.graph.all_nodes():
            if node.op_identifier() in model.functions:
                calls.setdefault(describe_operator(node.domain, node.op_type), []).append(describe_node(node))
        result = InlinePass()(model)
        adaptations = tuple(Adaptation(f"{name} is inlined", tuple(nodes)) for name, nodes in calls.items())
        return AdaptationResult(result.model, result.modified, adaptations)
