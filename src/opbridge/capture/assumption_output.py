"""An output of the model that says whether its inputs fulfil the assumptions under which it was captured."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import TensorArgument

from opbridge.torch_graph.outputs import opened
from opbridge.torch_graph.targets import target_key

__all__ = ["ASSUMPTIONS_HOLD", "WithCheck", "compute_check", "without_check"]

ASSUMPTIONS_HOLD = "assumptions_hold"
"""The name of the output, a bool."""


class WithCheck(torch.nn.Module):
    """Calls a module and returns, behind its outputs, whether the assumptions hold: here always true.

    Args:
        module: The module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        self.training = module.training

        def forward(*args: Any, **kwargs: Any) -> tuple[Any, torch.Tensor]:
            return opened(module(*args, **kwargs)), torch.ones((), dtype=torch.bool)

        forward.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]
        self.forward = forward


def without_check(output_names: Sequence[str] | None) -> Sequence[str] | None:
    """The names of the module's own outputs."""
    if not output_names or output_names[-1] != ASSUMPTIONS_HOLD:
        return output_names
    return output_names[:-1]


def compute_check(program: torch.export.ExportedProgram) -> None:
    """Compute the last output of a captured :class:`WithCheck` from the conditions that the program checks."""
    graph = program.graph
    output = graph.output_node()
    *others, constant = output.args[0]  # type: ignore[misc]
    found: torch.fx.Node = constant
    with graph.inserting_before(output):
        for node in [node for node in graph.nodes if target_key(node.target) == "aten::_assert_scalar.default"]:
            condition = node.args[0]
            if isinstance(condition, torch.fx.Node):
                found = _call(graph, torch.ops.aten.logical_and.default, found, _as_tensor(graph, condition, constant))
    output.args = ((*others, found),)
    program.graph_signature.output_specs[-1].arg = TensorArgument(name=found.name)
    program.graph_module.recompile()


def _as_tensor(graph: torch.fx.Graph, condition: torch.fx.Node, like: torch.fx.Node) -> torch.fx.Node:
    """A bool of Python as a tensor with the fake mode of another."""
    node = graph.call_function(torch.ops.aten.scalar_tensor.default, (condition,), {"dtype": torch.bool})
    node.meta["val"] = like.meta["val"]
    return node


def _call(graph: torch.fx.Graph, operator: Any, one: torch.fx.Node, other: torch.fx.Node) -> torch.fx.Node:
    node = graph.call_function(operator, (one, other))
    node.meta["val"] = one.meta["val"]
    return node
