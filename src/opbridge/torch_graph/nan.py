"""Which nodes of a graph must keep NaN: those whose results an operator that detects NaN may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from opbridge.torch_graph.targets import target_key

__all__ = ["detects_nan", "nodes_before_nan_checks"]

_CHECKS = frozenset(
    {
        *("aten::isnan", "aten::isfinite", "aten::nan_to_num", "aten::nansum", "aten::nanmean", "aten::nanmedian"),
        *("aten::nanquantile", "aten::fmax", "aten::fmin", "prims::isfinite", "prims::fmax", "prims::fmin"),
    }
)
"""The operators that detect or ignore NaN, without overloads; in-place variants too."""

_COMPARISONS = frozenset({"aten::eq", "aten::ne", "aten::equal", "prims::eq", "prims::ne"})
"""The operators that detect NaN if both operands are the same value: ``x != x``."""

_EQUAL_NAN = frozenset({"aten::isclose", "aten::allclose"})


def nodes_before_nan_checks(module: torch.fx.GraphModule, *, all_nodes: bool = False) -> frozenset[torch.fx.Node]:
    """The nodes from which an operator that detects NaN is reachable, and these operators themselves.

    A node with inner graphs (``torch.cond``, a loop) detects NaN if one of them does, and is one node here: if it is in
    the result, so are all nodes inside. A call that changes an argument in place counts if any later node does.

    Args:
        module: The graph.
        all_nodes: Whether to return all nodes, because the results of the graph reach such an operator outside.
    """
    found: set[torch.fx.Node] = set()
    for node in reversed(module.graph.nodes):
        inner = list(_inner_graphs(module, node))
        if (
            all_nodes
            or detects_nan(node)
            or any(user in found for user in node.users)
            or (found and _mutates(node))
            or any(nodes_before_nan_checks(graph) for graph in inner)
        ):
            found.add(node)
            for graph in inner:
                found |= nodes_before_nan_checks(graph, all_nodes=True)
    return frozenset(found)


def detects_nan(node: torch.fx.Node) -> bool:
    """Whether the purpose of a call is to detect or to ignore NaN."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = str(target_key(node.target)).partition(".")[0].removesuffix("_")
    if name in _COMPARISONS:
        return len(node.args) == 2 and isinstance(node.args[0], torch.fx.Node) and node.args[0] is node.args[1]
    if name in _EQUAL_NAN:
        return bool(node.kwargs.get("equal_nan", node.args[4] if len(node.args) > 4 else False))
    return name in _CHECKS


def _mutates(node: torch.fx.Node) -> bool:
    """Whether a call changes an argument in place, which later nodes may read under any name."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _inner_graphs(module: torch.fx.GraphModule, node: torch.fx.Node) -> Iterator[torch.fx.GraphModule]:
    """The graphs that a higher-order operator takes as arguments."""
    for argument in node.all_input_nodes if isinstance(node.target, torch._ops.HigherOrderOperator) else ():
        if argument.op == "get_attr":
            value: Any = module
            for name in str(argument.target).split("."):
                value = getattr(value, name)
            if isinstance(value, torch.fx.GraphModule):
                yield value
