"""Stage 5: ask an engine about every node of a model, and collect what it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opbridge.engines.base import Engine, Refusal, RefusalKind
from opbridge.onnx_model.infer import bind_body, binding, with_types
from opbridge.onnx_model.names import describe_node, describe_operator

if TYPE_CHECKING:
    from onnx_ir import Function, Model, Node

__all__ = ["probe"]


def probe(model: Model, engine: Engine, kernels: Iterable[str] = ()) -> tuple[Refusal, ...]:
    """The nodes that the engine refuses; empty if it takes the whole model.

    Subgraphs are included. For a call of a model-local function, the nodes of its body are checked, with the types of
    that call, unless the engine has an operator of that name, which then must take the call. A refusal inside a body is
    reported under the name of the call in the graph (which the plan can replace), with the refused operator.

    Args:
        model: A model; types that it does not state are inferred. It is not changed.
        engine: The engine, which answers each distinct question once.
        kernels: ``"domain::Op"`` of the nodes for which kernels are loaded; the engine is not asked about these.
    """
    model = with_types(model)
    return tuple(_Probe(model, engine, frozenset(kernels)).refusals(model.graph.all_nodes(), model.opset_imports))


class _Probe:
    def __init__(self, model: Model, engine: Engine, kernels: frozenset[str]) -> None:
        self._kernels = kernels
        self._model = model
        self._engine = engine
        self._bodies: dict[Any, tuple[Refusal, ...]] = {}

    def refusals(self, nodes: Iterable[Node], opset_imports: Mapping[str, int]) -> Iterator[Refusal]:
        for node in nodes:
            if f"{node.domain}::{node.op_type}" in self._kernels:
                continue
            refusal = self._engine.supports(node, opset_imports)
            if refusal is None:
                continue
            function = self._model.functions.get(node.op_identifier())
            if function is None or refusal.kind is not RefusalKind.UNKNOWN_OPERATOR:
                yield refusal
            elif not self._engine.takes_functions:
                reason = f"{self._engine.name} takes no model-local functions"
                yield dataclasses.replace(refusal, reason=reason, kind=RefusalKind.OTHER)
            else:
                yield from self._call_refusals(node, function)

    def _call_refusals(self, call: Node, function: Function) -> Iterator[Refusal]:
        key = (function.identifier(), binding(call))
        if key not in self._bodies:
            body = bind_body(self._model, function, call)
            self._bodies[key] = tuple(self.refusals(body.all_nodes(), function.opset_imports))
        name = describe_operator(function.domain, function.name)
        for refusal in self._bodies[key]:
            reason = f"{refusal.reason}, in the body of {name}"
            yield dataclasses.replace(refusal, node=describe_node(call), reason=reason)
