"""Makes a float32 model that rounds like the narrow model.

An engine without kernels for a narrow type computes in float32 and skips the rounding in between. Explicit rounding
shows what an engine with such kernels would compute.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from opbridge.surgery.edited import fresh_name, names_of_values, remove_unused
from opbridge.surgery.lazy_weights import converted_weight

__all__ = ["rounded"]


def rounded(model: ir.Model, narrow: Collection[str], dtype: ir.DataType) -> tuple[ir.Model, dict[str, str]]:
    """A copy in which the named nodes read rounded weights and inputs, and round their results.

    Returns:
        The model, and the name of the rounded value for each value that is rounded.
    """
    copy: ir.Model = model.clone()
    graph, taken = copy.graph, names_of_values(copy)
    names: dict[str, str] = {}
    read: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if node.name not in narrow:
            continue
        for position, value in enumerate(node.inputs):
            if value is not None and value.producer() is None and value.dtype is ir.DataType.FLOAT:
                if value not in read:
                    read[value] = _round(graph, value, dtype, node, taken)
                node.replace_input_with(position, read[value])
        for value in node.outputs:
            if value.dtype is ir.DataType.FLOAT and value.name:
                names[value.name] = _round_result(graph, value, dtype, node, taken)
    remove_unused(graph, [], [value for value in graph.initializers.values() if not value.uses()])
    return copy, names


def _round(graph: ir.Graph, value: ir.Value, dtype: ir.DataType, before: ir.Node, taken: set[str]) -> ir.Value:
    if value.const_value is not None and not value.is_graph_input():
        name = fresh_name(f"{value.name}_rounded", taken)
        weight = converted_weight(value.const_value, name, dtype, ir.DataType.FLOAT)
        graph.register_initializer(weight)
        return weight
    nodes = _casts(value, dtype, taken)
    graph.insert_before(before, nodes)
    return nodes[1].outputs[0]


def _round_result(graph: ir.Graph, value: ir.Value, dtype: ir.DataType, node: ir.Node, taken: set[str]) -> str:
    uses = list(value.uses())
    is_output = value.is_graph_output()
    nodes = _casts(value, dtype, taken)
    graph.insert_after(node, nodes)
    result = nodes[1].outputs[0]
    for use in uses:
        use.node.replace_input_with(use.idx, result)
    if is_output:
        for position, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[position] = result
        value.name, result.name = result.name, value.name
    return str(result.name)


def _casts(value: ir.Value, dtype: ir.DataType, taken: set[str]) -> list[ir.Node]:
    nodes = []
    for target in (dtype, ir.DataType.FLOAT):
        node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(target))])
        node.name = fresh_name(f"Round_{value.name}", taken)
        value_ = node.outputs[0]
        value_.name = fresh_name(f"{value.name}_rounded", taken)
        value_.type, value_.shape = ir.TensorType(target), value.shape
        nodes.append(node)
        value = value_
    return nodes
