"""Makes nodes run their function bodies if their operator's kernel does not support their element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["BODY_DOMAIN", "ServeUncoveredByBodyPass"]

BODY_DOMAIN = "opbridge.body"
"""A domain that no library registers, so that a node in it runs its function body."""


ORDER = 10


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> ServeUncoveredByBodyPass | None:
    """The pass for every engine that loads kernels."""
    return ServeUncoveredByBodyPass(kernels) if kernels else None


class ServeUncoveredByBodyPass(ir.passes.InPlacePass):
    """Move nodes whose element types no variant of the kernel supports, and their functions, to a separate domain.

    An engine has no fallback: it looks up the registered name before it checks element types, so a float64 node with a
    float32 kernel would make the whole model invalid.
    """

    def __init__(self, operators: Sequence[KernelOperator]) -> None:
        super().__init__()
        self._operators = {(operator.domain, operator.name): operator for operator in operators}

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the nodes that run their body."""
        moved: dict[str, list[str]] = {}
        for node in all_nodes(model):
            operator = self._operators.get((node.domain, node.op_type))
            function = model.functions.get(node.op_identifier())
            if operator is None or function is None or covers(operator, node):
                continue
            name = describe_operator(node.domain, node.op_type)
            moved.setdefault(name, []).append(describe_node(node))
            _move(model, node, function)
        adaptations = tuple(
            Adaptation(f"{name} runs its body: its kernel does not take these element types", tuple(nodes), name)
            for name, nodes in moved.items()
        )
        return AdaptationResult(model, bool(moved), adaptations)


def covers(operator: KernelOperator, node: ir.Node) -> bool:
    """Whether a kernel supports the number and the element types of a node's inputs."""
    inputs = list(node.inputs)
    variadic = bool(operator.inputs) and operator.inputs[-1].variadic
    if len(inputs) > len(operator.inputs) and not variadic:
        return False
    dtypes = [None if value is None else _name(value) for value in inputs]
    if any(dtype == "" for dtype in dtypes):
        return True  # The type is unknown; the engine decides.
    return operator.find_variant(dtypes) is not None


def _name(value: ir.Value) -> str:
    return "" if value.dtype is None else str(value.dtype.numpy())


def _move(model: ir.Model, node: ir.Node, function: ir.Function) -> None:
    name = f"{node.domain}.{node.op_type}"
    node.domain, node.op_type = BODY_DOMAIN, name
    if node.op_identifier() not in model.functions:
        copy = ir.Function(BODY_DOMAIN, name, function.overload, graph=function.graph.clone(), attributes=[])
        model.functions[copy.identifier()] = copy
    model.opset_imports.setdefault(BODY_DOMAIN, 1)
    for other in model.functions.values():
        other.opset_imports.setdefault(BODY_DOMAIN, 1)
