"""Iteration over all of a model: the main graph, model-local functions, and their subgraphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["all_graphs", "all_nodes", "scopes"]


def scopes(model: ir.Model) -> list[ir.Graph | ir.Function]:
    """The main graph, then the model-local functions; each has separate opset imports and a separate name space."""
    return [model.graph, *model.functions.values()]


def all_graphs(model: ir.Model) -> list[ir.Graph]:
    """The main graph and the graphs of functions, each followed by its subgraphs."""
    own = (model.graph, *(function.graph for function in model.functions.values()))
    return [graph for top in own for graph in (top, *top.subgraphs())]


def all_nodes(model: ir.Model) -> list[ir.Node]:
    """Every node, including those in subgraphs and functions, as a list: the model may be edited while iterating."""
    return [node for scope in scopes(model) for node in scope.all_nodes()]
