"""Puts a model into inference state, and restores it exactly afterwards.

Attention uses a different memory layout if its bias requires a gradient, and the export of T5, Swin, BEiT and a dozen
other models then fails on a ``view``. ``torch.no_grad`` does not help, because the choice depends on ``requires_grad``
itself. Parameters, buffers and example inputs are therefore captured with ``requires_grad=False``, in evaluation mode.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["freeze_program", "frozen", "frozen_copy", "without_gradients"]


@contextlib.contextmanager
def frozen(module: torch.nn.Module) -> Iterator[bool]:
    """Put ``module`` into evaluation mode without ``requires_grad``, and restore its state on exit.

    Yields:
        Whether any part of it was in training mode.
    """
    modes = [(part, part.training) for part in module.modules()]
    tensors = [t for t in (*module.parameters(), *module.buffers()) if not torch.nn.parameter.is_lazy(t)]
    leaves = [t for t in tensors if t.requires_grad and t.is_leaf]
    try:
        for part, training in modes:
            if training:
                part.training = False
        for tensor in leaves:
            tensor.requires_grad_(False)
        yield any(training for _, training in modes)
    finally:
        for tensor in leaves:
            tensor.requires_grad_(True)
        for part, training in modes:
            part.training = training


def without_gradients(values: Any) -> Any:
    """A copy of nested example inputs in which all tensors are detached and distinct objects.

    torch.onnx would connect two inputs that are the same object to one input of the model.
    """
    seen: set[int] = set()

    def detach(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in seen:
            return value.detach().clone()
        seen.add(id(value))
        return value.detach() if value.requires_grad else value

    return torch.utils._pytree.tree_map(detach, values)


def freeze_program(program: torch.export.ExportedProgram) -> None:
    """Set ``requires_grad`` to False for the program's tensors, without copying data or changing the user's tensors."""
    replaced: dict[int, torch.Tensor] = {}
    for tensors in (program.state_dict, program.constants):
        for name, value in tensors.items():
            if isinstance(value, torch.Tensor):
                tensors[name] = replaced.setdefault(id(value), _detached(value))


def frozen_copy(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A copy of a captured program whose tensors do not require gradients; it shares their memory.

    Each ``view`` becomes a ``reshape``, because memory layouts may depend on ``requires_grad``.
    """
    graph = copy.deepcopy(program.graph)
    for node, original in zip(graph.nodes, program.graph.nodes, strict=True):
        # A copied graph avoids the names of Python's builtins, such as "input"; the signature has the original ones.
        node.name = original.name
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.requires_grad:
            node.meta["val"] = value.detach()
    copied = torch.export.ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=program.graph_signature,
        state_dict=dict(program.state_dict),
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=dict(program.constants),
        verifiers=list(program.verifiers),
    )
    freeze_program(copied)
    return copied


def _detached(value: torch.Tensor) -> torch.Tensor:
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach(), requires_grad=False)
    return value.detach()
