"""Registers constants that nodes read but that no graph owns, and whose names another constant may have.

The rewrite rules of torch.onnx's optimizer name their new initializers after an input of the matched nodes. If a rule
matches twice behind one value (two chains of ``clamp`` on one tensor), the second initializer takes the place of the
first, and the nodes of the first match read a constant that is in no graph.
"""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.scopes import all_graphs

__all__ = ["OwnedConstantsPass"]


class OwnedConstantsPass(ir.passes.InPlacePass):
    """Make each constant without an owner an initializer of the main graph, under a name of its own."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place; its results become those that its nodes describe."""
        owned = {id(value) for graph in all_graphs(model) for value in (*graph.inputs, *graph.initializers.values())}
        taken = {value.name for graph in all_graphs(model) for value in _named(graph)}
        modified = False
        for node in model.graph.all_nodes():
            for value in node.inputs:
                if value is None or value.producer() is not None or value.const_value is None or id(value) in owned:
                    continue
                value.name = _free(value.name or f"{node.name}_constant", taken)
                model.graph.register_initializer(value)
                owned.add(id(value))
                taken.add(value.name)
                modified = True
        return ir.passes.PassResult(model, modified)


def _named(graph: ir.Graph) -> list[ir.Value]:
    made = [value for node in graph for value in node.outputs]
    return [*graph.inputs, *graph.initializers.values(), *made]


def _free(name: str, taken: set[str | None]) -> str:
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
