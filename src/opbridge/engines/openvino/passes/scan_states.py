"""For Scans whose body reads values of the outer graph, which OpenVINO counts as states and then reports missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from opbridge.onnx_model.adaptation import Adaptation, AdaptationResult
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets.building import Names
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.engines.base import Engine
    from opbridge.kernels.library import KernelOperator

__all__ = ["ScanStatesPass"]

ORDER = 60
"""This pass runs after functions are inlined."""


def for_engine(model: ir.Model, engine: Engine, kernels: Sequence[KernelOperator]) -> ScanStatesPass | None:
    """For a model with such a Scan."""
    return ScanStatesPass() if any(_read_from_outside(node) for node in _scans(model)) else None


class ScanStatesPass(ir.passes.InPlacePass):
    """Turn the outer values that the body reads into states of the Scan, which it passes on unchanged."""

    def call(self, model: ir.Model) -> AdaptationResult:
        """Change ``model`` in place; the result lists the changed nodes."""
        fill_types(model)
        names = Names(model)
        changed = []
        # Outer Scans come first: a value that an inner Scan reads may become a state of the outer one.
        for node in list(_scans(model)):
            outside = _read_from_outside(node)
            if outside:
                changed.append(describe_node(node))
                _carry(node, outside, names)
        adaptations = (Adaptation("values that the body of a Scan reads become its states", tuple(changed)),)
        return AdaptationResult(model, bool(changed), adaptations if changed else ())


def _scans(model: ir.Model) -> list[ir.Node]:
    return [node for node in all_nodes(model) if node.op_type == "Scan" and not node.domain]


def _read_from_outside(node: ir.Node) -> list[ir.Value]:
    """The values of the outer graph that a Scan's body reads, each once."""
    body = node.attributes["body"].as_graph()
    nodes = list(body.all_nodes())
    graphs = [body, *body.subgraphs()]
    own = {value for graph in graphs for value in (*graph.inputs, *graph.initializers.values())}
    own |= {value for each in nodes for value in each.outputs}
    read = (value for each in nodes for value in each.inputs)
    return list(dict.fromkeys(value for value in read if value is not None and value not in own))


def _carry(node: ir.Node, outside: Sequence[ir.Value], names: Names) -> None:
    body = node.attributes["body"].as_graph()
    states = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
    for value in reversed(outside):
        state = ir.Value(name=names.fresh(f"{value.name}_state"), type=value.type, shape=value.shape)
        _replace_within(body, value, state)
        handed_on = ir.node("Identity", [state], name=names.fresh(f"{state.name}_handed_on"))
        handed_on.outputs[0].name = names.fresh(f"{state.name}_next")
        handed_on.outputs[0].type, handed_on.outputs[0].shape = value.type, value.shape
        body.append(handed_on)
        body.inputs.insert(states, state)
        body.outputs.insert(states, handed_on.outputs[0])
    _with_states(node, outside, states, names)


def _replace_within(body: ir.Graph, value: ir.Value, state: ir.Value) -> None:
    for node in body.all_nodes():
        for position, given in enumerate(node.inputs):
            if given is value:
                node.replace_input_with(position, state)


def _with_states(node: ir.Node, outside: Sequence[ir.Value], states: int, names: Names) -> None:
    """Replace a Scan by one with these additional states."""
    graph = node.graph
    assert graph is not None
    before, after = node.outputs[:states], node.outputs[states:]
    last = [names.fresh(f"{value.name}_last") for value in outside]
    inputs = [*node.inputs[:states], *outside, *node.inputs[states:]]
    attributes = list(node.attributes.values())
    node.attributes.pop("body")
    made = ir.Node("", "Scan", inputs, attributes, num_outputs=len(node.outputs) + len(last), name=node.name)
    made.metadata_props.update(node.metadata_props)
    for name, result in zip(last, made.outputs[states : states + len(last)], strict=True):
        result.name = name
    kept = [*made.outputs[: len(before)], *made.outputs[states + len(last) :]]
    ir.convenience.replace_nodes_and_values(graph, node, [node], [made], [*before, *after], kept)
