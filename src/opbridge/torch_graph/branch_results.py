"""Copies results of a branch that share memory: ``torch.cond(p, lambda x: x, torch.neg, (x,))`` runs in PyTorch.

``torch.cond`` accepts such a branch where no gradients are recorded, and so does torch.export, but the decomposition of
the captured program does not.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

__all__ = ["copy_shared_results"]


def copy_shared_results(program: torch.export.ExportedProgram) -> None:
    """Copy each result of a branch or a body that is an input, a view, or a result twice.

    Args:
        program: The captured program, whose subgraphs are changed in place.
    """
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule) and module is not program.graph_module:
            _copy_in(module)


def _copy_in(module: fx.GraphModule) -> None:
    output = module.graph.output_node()
    results = list(output.args[0]) if isinstance(output.args[0], (tuple, list)) else []
    shared = list(_shared(results))
    for index in shared:
        with module.graph.inserting_before(output):
            copied = module.graph.call_function(torch.ops.aten.clone.default, (results[index],))
        copied.meta = dict(results[index].meta)
        results[index] = copied
    if shared:
        output.args = (tuple(results),)
        module.recompile()


def _shared(results: list[Any]) -> Iterator[int]:
    """The positions of the tensors that share memory with an input or with an earlier result."""
    seen: set[fx.Node] = set()
    for index, node in enumerate(results):
        if not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        maker = node.args[0] if node.target is operator.getitem else node
        assert isinstance(maker, fx.Node)
        if node in seen or maker.op != "call_function" or _is_view(maker.target):
            yield index
        seen.add(node)


def _is_view(target: Any) -> bool:
    """Whether the result of an operator shares memory with its input: ``aten.view``, ``aten.split``, ``aten.add_``."""
    returns = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
    return any(result.alias_info is not None for result in returns)
