"""Expands standard operators that an engine does not have and that the standard defines by a function body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from opbridge.engines.probe import probe
from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.infer import fill_types, with_types
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets.bodies import expand_body
from opbridge.onnx_model.opsets.building import Builder, Names
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.schemas import find_schema, is_standard
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.scopes import scopes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["ExpandStandardBodiesPass"]


ORDER = 35
LAST_RESORT = True

_DEEPEST = 4


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> ExpandStandardBodiesPass | None:
    """The pass if the engine refuses an operator of the model that has a function body in the standard."""
    typed = with_types(model)
    refused = (
        engine.supports(node, scope.opset_imports) is not None
        for scope in scopes(typed)
        for node in scope.all_nodes()
        if is_standard(node) and _has_body(f"ai.onnx::{node.op_type}", model)
    )
    return ExpandStandardBodiesPass(engine) if any(refused) else None


class ExpandStandardBodiesPass(ir.passes.InPlacePass):
    """Replace each refused node by the standard's function body of its operator, if there is one."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the expanded operators; do not use it if there are none."""
        fill_types(model)
        before = len(probe(model, self._engine))
        names = Names(model)
        done: dict[str, dict[str, None]] = {}
        # A body may contain another operator that the engine does not have and that has a body.
        for _ in range(_DEEPEST):
            expanded = [self._expand(scope, model, names, done) for scope in scopes(model)]
            if not any(expanded):
                break
        adaptations = tuple(
            Adaptation(f"{operator} becomes its body in the standard", tuple(nodes), operator)
            for operator, nodes in done.items()
        )
        if len(probe(model, self._engine)) >= before:
            return AdaptationResult(model, False)
        return AdaptationResult(model, True, adaptations)

    def _expand(
        self, scope: ir.Graph | ir.Function, model: ir.Model, names: Names, done: dict[str, dict[str, None]]
    ) -> bool:
        """Expand each refused node once, and return whether there was one."""
        opset = scope.opset_imports.get("", model.opset_imports.get("", 1))
        found = False
        for node in list(scope.all_nodes()):
            if not is_standard(node) or not _has_body(f"ai.onnx::{node.op_type}", model):
                continue
            if self._engine.supports(node, scope.opset_imports) is None:
                continue
            name, operator = describe_node(node), node.op_type
            builder = Builder(node, opset, names, lambda made: None)
            try:
                expand_body(Site(node, opset, opset, builder, builder))
            except CannotExpress:
                continue
            found = True
            done.setdefault(f"ai.onnx::{operator}", {})[name] = None
        for node in scope.all_nodes():
            node.version = None
        return found


def _has_body(operator: str, model: ir.Model) -> bool:
    domain, _, op_type = operator.partition("::")
    schema = find_schema(op_type, model.opset_imports.get("", 1)) if domain == "ai.onnx" else None
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)
