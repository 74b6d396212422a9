"""Extract the part of a model between named values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.surgery.edited import Change, Edited, describe, find_value, finished, model_of
from opbridge.surgery.shapes import refine_shapes

__all__ = ["drop_functions", "extract"]


def extract(model: Any, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Edited:
    """Extract the part of a model between given values as a separate model.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        inputs: The values that become the inputs; by default those of the model's inputs that are needed.
        outputs: The values that become the outputs; by default the model's outputs.

    Raises:
        InputError: A value does not exist, or the outputs need an input of the model that is not among ``inputs``.
    """
    own = model_of(model)
    refine_shapes(own)
    starts = [find_value(own, name) for name in inputs or ()]
    ends = [find_value(own, name) for name in outputs] if outputs is not None else list(own.graph.outputs)
    if not ends:
        raise InputError("No output was named.", fix="name at least one value as an output.")
    for value in ends:
        if value in starts:
            raise InputError(
                f"{value.name!r} is named as an input and as an output.", fix="cut at two different values."
            )
    needed = _needed_inputs(starts, ends)
    if inputs is None:
        starts = [value for value in own.graph.inputs if value in needed]
    elif missing := [value for value in needed if value not in starts]:
        user = next((describe(use.node) for use in missing[0].uses()), "")
        raise InputError(
            f"The outputs need the model's input {missing[0].name!r}, which is not among the inputs"
            + (f": the node {user!r} reads it." if user else "."),
            fix=f"add {missing[0].name!r} to the inputs, or cut behind what reads it.",
        )
    graph = ir.convenience.extract(own.graph, starts, ends)
    left = len(list(own.graph)) - len(list(graph))
    part = ir.Model(
        graph,
        ir_version=own.ir_version,
        producer_name=own.producer_name,
        producer_version=own.producer_version,
        domain=own.domain,
        model_version=own.model_version,
        doc_string=own.doc_string,
        functions=list(own.functions.values()),
        metadata_props=dict(own.metadata_props),
    )
    graph.opset_imports.update(own.opset_imports)
    drop_functions(part)
    names = tuple(str(value.name) for value in (*graph.inputs, *graph.outputs))
    return finished(model, part, [Change(f"{left} nodes are left out", names)])


def _needed_inputs(starts: Sequence[ir.Value], ends: Sequence[ir.Value]) -> list[ir.Value]:
    """The inputs of the graph from which ``ends`` are computed on a path that does not go through ``starts``."""
    stop = set(starts)
    found: dict[ir.Value, None] = {}
    waiting = [value for value in ends if value not in stop]
    seen = set(waiting)
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if node is None:
            if value.is_graph_input() and value.const_value is None:
                found[value] = None
            continue
        read = [item for item in node.inputs if item is not None]
        for inner in _inner_nodes(node):
            read.extend(item for item in inner.inputs if item is not None and item.graph is node.graph)
        for item in read:
            if item not in seen and item not in stop:
                seen.add(item)
                waiting.append(item)
    return list(found)


def _inner_nodes(node: ir.Node) -> list[ir.Node]:
    graphs = [item.as_graph() for item in node.attributes.values() if item.type is ir.AttributeType.GRAPH]
    return [inner for graph in graphs for inner in graph.all_nodes()]


def drop_functions(model: ir.Model) -> None:
    """Remove functions that are never called, and opset imports of unused domains."""
    used: set[Any] = set()
    waiting: list[Any] = [model.graph]
    domains: set[str] = {""}
    while waiting:
        for node in waiting.pop().all_nodes():
            domains.add(node.domain)
            key = node.op_identifier()
            if key in model.functions and key not in used:
                used.add(key)
                waiting.append(model.functions[key])
    for key in [key for key in model.functions if key not in used]:
        del model.functions[key]
    for domain in [domain for domain in model.opset_imports if domain not in domains]:
        del model.opset_imports[domain]
