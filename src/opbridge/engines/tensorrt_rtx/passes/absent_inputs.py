"""For calls of functions that leave inputs out: the parser requires as many as the function declares."""

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

__all__ = ["AbsentInputsPass"]

ORDER = 16


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> AbsentInputsPass | None:
    """For a model with such a call."""
    return AbsentInputsPass() if any(_absent(model, function) for function in model.functions.values()) else None


class AbsentInputsPass(ir.passes.InPlacePass):
    """Remove unused inputs of functions that some call leaves out, from the function and from its calls."""

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the calls that lose inputs."""
        done: dict[str, list[str]] = {}
        for function in model.functions.values():
            positions = _absent(model, function)
            if not positions:
                continue
            what = f"{describe_operator(function.domain, function.name)} loses inputs that it does not use"
            for call in _calls(model, function):
                kept = [value for i, value in enumerate(call.inputs) if i not in positions]
                call.resize_inputs(len(kept))
                for position, value in enumerate(kept):
                    call.replace_input_with(position, value)
                done.setdefault(what, []).append(describe_node(call))
            for position in sorted(positions, reverse=True):
                function.inputs.pop(position)
        adaptations = tuple(Adaptation(what, tuple(nodes)) for what, nodes in done.items())
        return AdaptationResult(model, bool(done), adaptations)


def _calls(model: ir.Model, function: ir.Function) -> list[ir.Node]:
    return [node for node in all_nodes(model) if node.op_identifier() == function.identifier()]


def _absent(model: ir.Model, function: ir.Function) -> set[int]:
    """The positions of the inputs that the body does not use and that some call leaves out."""
    unused = {i for i, value in enumerate(function.inputs) if not value.uses() and value not in function.outputs}
    calls = _calls(model, function) if unused else []
    return {i for i in unused if any(i >= len(call.inputs) or call.inputs[i] is None for call in calls)}
