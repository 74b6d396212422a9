"""Parts of ``unbind`` that a program writes into, as ``q *= scale`` after ``q, k, v = x.unbind(2)``.

torch fixes all sizes where it makes such a program functional; with a ``select`` for each part it does not.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

__all__ = ["select_mutated_parts"]

_aten = torch.ops.aten


def select_mutated_parts(program: torch.export.ExportedProgram) -> None:
    """Replace each ``unbind`` whose input or result an operator writes into by ``select`` operators.

    Args:
        program: The captured program, which is changed in place.
    """
    for module in program.graph_module.modules():
        if not isinstance(module, fx.GraphModule):
            continue
        unbinds = module.graph.find_nodes(op="call_function", target=_aten.unbind.int)
        mutated = _mutated(module.graph) if unbinds else set()
        for node in unbinds:
            parts = [user for user in node.users if user.target is operator.getitem]
            if len(parts) == len(node.users) and not mutated.isdisjoint([node, node.args[0], *parts]):
                _select(module.graph, node, parts)
        module.recompile()


def _mutated(graph: fx.Graph) -> set[Any]:
    """The nodes whose memory an operator writes into: its argument, and what that is a view of."""
    found: set[Any] = set()
    for node in graph.nodes:
        for argument, value in zip(_parameters(node), node.args, strict=False):
            while argument.is_write and isinstance(value, fx.Node) and value not in found:
                found.add(value)
                is_view = value.target is operator.getitem or any(one.alias_info for one in _parameters(value)[:1])
                value = value.args[0] if is_view else None
    return found


def _parameters(node: fx.Node) -> Any:
    schema = getattr(node.target, "_schema", None)
    return schema.arguments if node.op == "call_function" and schema is not None else ()


def _select(graph: fx.Graph, node: fx.Node, parts: list[fx.Node]) -> None:
    source, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
    for part in parts:
        with graph.inserting_before(part):
            one = graph.call_function(_aten.select.int, (source, dim, part.args[1]))
        one.meta = dict(part.meta)
        part.replace_all_uses_with(one)
        graph.erase_node(part)
    graph.erase_node(node)
