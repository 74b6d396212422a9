"""An ONNX model with inputs, and parts of such a model, which are the candidates of a reduction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass, RemoveUnusedOpsetsPass

from opbridge.proof.verify.widened_model import widened_model

__all__ = ["Problem", "evaluate", "part_of", "widened"]

Feeds = Mapping[str, np.ndarray]
_ANY_TYPE = ir.TensorType(ir.DataType.FLOAT)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model with inputs.

    Attributes:
        model: The model.
        feeds: An array per input.
    """

    model: ir.Model
    feeds: Feeds

    @property
    def nodes(self) -> list[ir.Node]:
        """The nodes of the main graph, in topological order."""
        return list(self.model.graph)

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the nodes."""
        return tuple(dict.fromkeys(f"{node.domain or 'ai.onnx'}::{node.op_type}" for node in self.nodes))

    def names(self) -> set[str]:
        """The names of nodes and values."""
        found = {str(value.name) for value in (*self.model.graph.inputs, *self.model.graph.initializers.values())}
        for node in self.model.graph.all_nodes():
            found.add(node.name or "")
            found.update(value.name or "" for value in node.outputs)
        return found


def evaluate(model: ir.Model, feeds: Feeds, names: Sequence[str] | None = None) -> dict[str, Any] | None:
    """Run a model in onnx's reference evaluator; None if the evaluator can't run it.

    Args:
        model: The model.
        feeds: An array per input.
        names: The values of the main graph to return; by default the outputs.
    """
    from onnx.reference import ReferenceEvaluator

    outputs = list(names) if names is not None else [str(value.name) for value in model.graph.outputs]
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(ir.to_proto(_inlined(model))).run(outputs, dict(feeds))
    except Exception:
        # The evaluator may raise any exception; there is then no reference.
        return None
    arrays = (np.asarray(value) if np.isscalar(value) else value for value in results)
    return dict(zip(outputs, arrays, strict=True))


def widened(problem: Problem) -> Problem:
    """The same problem in float64."""
    feeds = {
        name: array.astype(np.float64) if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else array
        for name, array in problem.feeds.items()
    }
    return Problem(widened_model(_inlined(problem.model)), feeds)


def _inlined(model: ir.Model) -> ir.Model:
    if not model.functions:
        return model
    copy = model.clone()
    InlinePass()(copy)
    return copy


def part_of(problem: Problem, nodes: Sequence[ir.Node], values: Mapping[str, Any]) -> Problem | None:
    """A model of some nodes. Values read from other nodes become inputs; values that other nodes read become outputs.

    Args:
        problem: The whole model with its inputs.
        nodes: Some nodes of the model, in order.
        values: The known values of the whole model, by name.

    Returns:
        The part; None if a value that it needs is unknown or not a tensor.
    """
    kept = set(nodes)
    read = list(dict.fromkeys(value for node in nodes for value in _read_by(node, problem.model.graph)))
    outside = [value for value in read if value.producer() not in kept]
    weights = [value for value in outside if value.producer() is None and value.const_value is not None]
    inputs = [value for value in outside if value not in weights]
    feeds = {str(value.name): problem.feeds.get(str(value.name), values.get(str(value.name))) for value in inputs}
    if not all(isinstance(array, np.ndarray) for array in feeds.values()):
        return None
    owners = {inner: node for node in problem.model.graph for inner in _inner_nodes(node)}
    outputs = [value for node in nodes for value in node.outputs if value.name and _leaves(value, kept, owners)]
    view = ir.GraphView(
        inputs,
        outputs,
        nodes=list(nodes),
        initializers=weights,
        opset_imports=problem.model.graph.opset_imports,
        name=problem.model.graph.name,
    )
    return Problem(_model_of(problem.model, view.clone(), feeds, values), feeds)  # type: ignore[arg-type]


def _model_of(original: ir.Model, graph: ir.Graph, feeds: Mapping[str, Any], values: Mapping[str, Any]) -> ir.Model:
    for value in (*graph.inputs, *graph.outputs):
        array = feeds.get(str(value.name), values.get(str(value.name)))
        if isinstance(array, np.ndarray) and array.dtype.kind not in "OUS":
            value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
            value.shape = ir.Shape(array.shape)
        elif value.type is None:
            # This node never runs. A model must declare the types of its outputs; most operators return the input type.
            value.type = next((item.type for item in _inputs_of(value) if item.type is not None), _ANY_TYPE)
    functions = [function.clone() for function in original.functions.values()]
    model = ir.Model(graph, ir_version=original.ir_version, functions=functions)
    graph.opset_imports.update(original.opset_imports)
    RemoveUnusedFunctionsPass()(model)
    RemoveUnusedOpsetsPass()(model)
    return model


def _inputs_of(value: ir.Value) -> Iterator[ir.Value]:
    node = value.producer()
    yield from (item for item in (node.inputs if node is not None else ()) if item is not None)


def _inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes in the subgraphs of a node."""
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type is ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()
        elif not attribute.is_ref() and attribute.type is ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                yield from graph.all_nodes()


def _read_by(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Value]:
    """The values of the main graph that a node or its subgraphs read."""
    yield from (value for value in node.inputs if value is not None)
    for inner in _inner_nodes(node):
        yield from (value for value in inner.inputs if value is not None and value.graph is graph)


def _leaves(value: ir.Value, kept: set[ir.Node], owners: Mapping[ir.Node, ir.Node]) -> bool:
    """Whether a value of a part is read by other nodes, or is an output of the whole model."""
    users = {owners.get(use.node, use.node) for use in value.uses()}
    return value.is_graph_output() or not users or not users <= kept
