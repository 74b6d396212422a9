"""Finds the NaN in a run of PyTorch that the contract of a model without NaN excludes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opbridge.torch_graph.nan import nodes_before_nan_checks
from opbridge.torch_graph.sources import source_of_node
from opbridge.torch_graph.targets import display_name, target_key

__all__ = ["NanWatch"]


class NanWatch:
    """Watches one run of a graph.

    Nodes before an operator that detects NaN are exported exactly and may compute NaN; no other node may compute or
    read one.

    Args:
        module: The graph.
        inputs: The values of its inputs, in order.

    Attributes:
        found: A description of the first value that is NaN outside the contract; empty if there is none.
    """

    def __init__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        self.found = ""
        self._exact = nodes_before_nan_checks(module)
        self._nodes = {node.name: node for node in module.graph.nodes}
        self._spoilt: set[torch.fx.Node] = set()
        for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=False):
            self._see(node, value)

    def __call__(self, name: str, own: Any, float64: Any, random: bool) -> None:
        """Look at the value of a node; see the ``watch`` of ``CapturedGraph.run``."""
        self._see(self._nodes[name], own)

    def _see(self, node: torch.fx.Node, value: Any) -> None:
        if self.found:
            return
        has_nan = any(map(_has_nan, torch.utils._pytree.tree_leaves(value)))
        if node in self._exact:
            self._spoilt |= {node} if has_nan else set()
            return
        spoilt = next((used for used in node.all_input_nodes if used in self._spoilt), None)
        if has_nan or spoilt is not None:
            self.found = _described(node if has_nan or spoilt is None else spoilt)


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return value != value
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    return bool(torch.isnan(value.float() if value.dtype.itemsize == 1 else value).any())


def _described(node: torch.fx.Node) -> str:
    if node.op == "placeholder":
        return f"the input {node.name}"
    source = source_of_node(node)
    return f"the result of {display_name(target_key(node.target))}{f' at {source}' if source else ''}"
