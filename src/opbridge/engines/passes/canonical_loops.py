"""Puts the loop-carried values of a Loop in a canonical order, so that the same model results in the same bytes.

onnxscript's converter keeps a loop's variables in a set of strings, whose order differs between processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

__all__ = ["CanonicalLoopsPass"]


class CanonicalLoopsPass(ir.passes.InPlacePass):
    """Order the loop-carried values of each ``Loop`` by their first use in the body, and renumber their names."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change ``model`` in place, without changing its results."""
        modified = False
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            for node in list(ir.traversal.RecursiveGraphIterator(graph)):
                if node.op_type == "Loop" and not node.domain:
                    _reorder(node)
                    modified = True
            _rename(graph)
        return ir.passes.PassResult(model, modified)


def _body(loop: ir.Node) -> ir.Graph:
    return loop.attributes["body"].as_graph()


def _reorder(loop: ir.Node) -> None:
    body = _body(loop)
    carried = len(loop.inputs) - 2
    first_use = _first_uses(body)
    order = sorted(range(carried), key=lambda i: first_use[id(body.inputs[2 + i])])
    if order == list(range(carried)) or loop.graph is None:
        return
    inputs = [*loop.inputs[:2], *(loop.inputs[2 + i] for i in order)]
    body.inputs[:] = [*body.inputs[:2], *(body.inputs[2 + i] for i in order)]
    body.outputs[:] = [body.outputs[0], *(body.outputs[1 + i] for i in order), *body.outputs[1 + carried :]]
    before = [*(loop.outputs[i] for i in order), *loop.outputs[carried:]]
    after = [ir.Value(name=value.name, shape=value.shape, type=value.type) for value in before]
    replacement = ir.Node("", "Loop", inputs, loop.attributes.values(), outputs=after, name=loop.name)
    replacement.metadata_props.update(loop.metadata_props)
    ir.convenience.replace_nodes_and_values(loop.graph, loop, [loop], [replacement], before, after)


def _first_uses(body: ir.Graph) -> dict[int, tuple[int, int]]:
    """The position of the body's first use of each value, or of its output if it is not used, by ``id``."""
    uses: dict[int, tuple[int, int]] = {}
    nodes = list(ir.traversal.RecursiveGraphIterator(body))
    for place, node in enumerate(nodes):
        for position, value in enumerate(node.inputs):
            if value is not None:
                uses.setdefault(id(value), (place, position))
    for position, value in enumerate(body.outputs):
        uses.setdefault(id(value), (len(nodes), position))
    for position, value in enumerate(body.inputs):
        uses.setdefault(id(value), (len(nodes) + 1, position))
    return uses


def _rename(graph: ir.Graph) -> None:
    """Number the names of the values in loops and of the results of loops, in the order of the graph."""
    affected = list(_values_of_loops(graph))
    chosen = {id(value) for value in affected}
    interface = {id(value) for value in (*graph.inputs, *graph.outputs)}
    taken = {value.name for value in _all_values(graph) if id(value) not in chosen or id(value) in interface}
    for value in affected:
        if id(value) in interface:
            continue
        base = re.sub(r"(_\d+)+$", "", value.name or "") or "value"
        name, number = base, 0
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        value.name = name


def _values_of_loops(graph: ir.Graph, inside: bool = False) -> Iterator[ir.Value]:
    for node in graph:
        loop = node.op_type == "Loop" and not node.domain
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                if loop:
                    yield from attribute.as_graph().inputs
                yield from _values_of_loops(attribute.as_graph(), inside or loop)
        if inside or loop:
            yield from node.outputs


def _all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in ir.traversal.RecursiveGraphIterator(graph):
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                yield from attribute.as_graph().inputs
                yield from attribute.as_graph().initializers.values()
