"""The regions of a captured graph in which ``torch.vmap`` runs: their tensors have a hidden axis."""

from __future__ import annotations

from collections.abc import Iterator

import torch

__all__ = ["nesting_change", "nodes_outside_vmap"]

_CHANGES = {"_vmap_increment_nesting": 1, "_vmap_decrement_nesting": -1}
"""Functions of ``torch._functorch.predispatch``, which torch.export records."""


def nesting_change(node: torch.fx.Node) -> int:
    """1 where a region begins, -1 where one ends, 0 for any other node."""
    return _CHANGES.get(getattr(node.target, "__name__", ""), 0) if node.op == "call_function" else 0


def nodes_outside_vmap(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """The nodes outside these regions, in order."""
    depth = 0
    for node in graph.nodes:
        depth += nesting_change(node)
        if depth == 0:
            yield node
