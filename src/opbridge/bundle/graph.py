"""The graph of a small model as rows, for the picture in the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.records import StoredRecord

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["MOST_NODES", "GraphRow", "graph_rows"]

MOST_NODES = 120
"""The maximum number of nodes; a picture of more can't be read."""


@dataclasses.dataclass(frozen=True)
class GraphRow(StoredRecord):
    """An input, a node or an output of a graph.

    Attributes:
        name: The name of the input, the node or the output.
        operator: The node's operator, ``"Add"`` or ``"mylib::scaled_add"``; empty for an input and an output.
        reads: The rows whose values it reads, by position.
    """

    name: str
    operator: str = ""
    reads: tuple[int, ...] = ()


def graph_rows(graph: ir.Graph) -> tuple[GraphRow, ...]:
    """The inputs, nodes and outputs in topological order, without constants; empty if there are too many nodes."""
    nodes = [node for node in graph if node.op_type != "Constant"]
    if len(nodes) > MOST_NODES:
        return ()
    rows: list[GraphRow] = []
    made: dict[ir.Value, int] = {}
    for value in graph.inputs:
        if value.name not in graph.initializers:
            made[value] = len(rows)
            rows.append(GraphRow(str(value.name)))
    for node in nodes:
        read = [made[value] for value in _values_read(node) if value in made]
        made.update(dict.fromkeys(node.outputs, len(rows)))
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        rows.append(GraphRow(str(node.name), operator, tuple(dict.fromkeys(read))))
    rows += [GraphRow(str(value.name), "", (made[value],)) for value in graph.outputs if value in made]
    return tuple(rows)


def _values_read(node: ir.Node) -> Iterator[ir.Value]:
    """The inputs of a node, and of the nodes in its subgraphs."""
    import onnx_ir as ir

    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        graphs = (attribute.value,) if attribute.type == ir.AttributeType.GRAPH else ()
        for graph in attribute.value if attribute.type == ir.AttributeType.GRAPHS else graphs:
            for inner in graph:
                yield from _values_read(inner)
            yield from graph.outputs
