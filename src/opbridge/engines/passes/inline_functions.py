"""Inlines model-local functions for engines that do not support them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node, describe_operator

if TYPE_CHECKING:
    from onnx_ir import Model

    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["InlineFunctionsPass"]


ORDER = 20


def for_engine(model: Model, engine: Engine, kernels: Sequence[KernelOperator]) -> InlineFunctionsPass | None:
    """The pass for engines without model-local functions. A node with a kernel is kept, without its function body."""
    if not model.functions or engine.takes_functions:
        return None
    return InlineFunctionsPass({kernel.target for kernel in kernels})


class InlineFunctionsPass(ir.passes.InPlacePass):
    """Replace every call of a model-local function by the function's nodes, and remove all functions.

    Args:
        kept: ``"domain::Op"`` of the nodes that are kept because a kernel computes them.
    """

    def __init__(self, kept: Collection[str] = ()) -> None:
        super().__init__()
        self._kept = frozenset(kept)

    def call(self, model: Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the calls of each function."""
        calls: dict[str, list[str]] = {}
        for node in model.graph.all_nodes():
            if node.op_identifier() in model.functions and not self._keeps(node.domain, node.op_type):
                calls.setdefault(describe_operator(node.domain, node.op_type), []).append(describe_node(node))
        result = InlinePass(lambda function: not self._keeps(function.domain, function.name))(model)
        kept = [key for key in result.model.functions if self._keeps(key[0], key[1])]
        for key in kept:
            del result.model.functions[key]
        adaptations = tuple(Adaptation(f"{name} is inlined", tuple(nodes), name) for name, nodes in calls.items())
        bodiless = dict.fromkeys(describe_operator(key[0], key[1]) for key in kept)
        adaptations += tuple(Adaptation(f"{name} has a kernel and no body", (), name) for name in bodiless)
        return AdaptationResult(result.model, result.modified or bool(kept), adaptations)

    def _keeps(self, domain: str, name: str) -> bool:
        return f"{domain}::{name}" in self._kept
