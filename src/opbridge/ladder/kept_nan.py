"""Which mappings of a plan keep NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from opbridge.catalog.declare.nan import EXACT, Nan
from opbridge.torch_graph.nan import detects_nan, nodes_before_nan_checks
from opbridge.torch_graph.origins import captured_name
from opbridge.torch_graph.targets import graph_modules

__all__ = ["KeptNan"]


class KeptNan:
    """Which calls must keep NaN: all, or those whose results an operator that detects NaN may see.

    The walk over the captured graph decides. A decomposition that detects a NaN of its own concerns only its own nodes,
    because no value that it is given is NaN.

    Args:
        program: The captured program.
        nan: What the model does with NaN elsewhere.
    """

    def __init__(self, program: torch.export.ExportedProgram, nan: Nan) -> None:
        self._everywhere = nan == EXACT
        self._graphs = frozenset(id(module.graph) for module in graph_modules(program))
        nodes = frozenset[torch.fx.Node]() if self._everywhere else nodes_before_nan_checks(program.graph_module)
        self._names = frozenset(node.name for node in nodes)

    def by(self, meta: Mapping[str, Any]) -> bool:
        """Whether the nodes that are made from a captured node keep NaN.

        Args:
            meta: The metadata of one of these nodes.
        """
        if self._everywhere or not self._names:
            return self._everywhere
        name = captured_name(meta, self._graphs)
        return name is None or name in self._names

    def targets(self, decomposed: torch.export.ExportedProgram) -> frozenset[Any]:
        """The targets of the decomposed program that keep NaN: if one call must, all calls of the target do."""
        found: set[torch.fx.Node] = set()
        for module in graph_modules(decomposed):
            for node in reversed(module.graph.nodes):
                name = captured_name(node.meta, self._graphs)
                own = (user for user in node.users if captured_name(user.meta, self._graphs) == name)
                if self.by(node.meta) or detects_nan(node) or any(user in found for user in own):
                    found.add(node)
        return frozenset(node.target for node in found if node.op == "call_function")
