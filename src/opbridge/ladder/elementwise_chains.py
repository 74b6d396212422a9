"""Finds chains of elementwise nodes, and makes each a node of its own with a kernel (``kernels="always"``).

An engine that computes each node for itself reads and writes memory once per node. A chain keeps its nodes as its ONNX
function body, so the model runs without the kernel too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from opbridge.kernels.declared import KernelSpec
from opbridge.kernels.elementwise_kernel import DOMAIN, ELEMENTWISE, Chain, Link, literal, write_kernels
from opbridge.kernels.python_kernel import DTYPES
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.scopes import scopes
from opbridge.onnx_model.shapes import are_equal

__all__ = ["compile_chains"]

_DTYPES = {ir.DataType.from_numpy(np.dtype(name)): name for name in DTYPES}
"""The element types of chains, by NumPy's names; ONNX Runtime has few kernels for 16-bit floats."""

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_OF_FLOATS_ONLY = frozenset(["Div", "Mod", "Pow"])
"""Operators whose integer variants are not in ``onnx_elements.h``."""

_TRANSFER = 0.45
"""Nanoseconds per element for reading the inputs and writing the output of one loop."""
_GAIN = 2.0
"""How many times as fast as its nodes a chain has to be."""
_SMALL = 4096
"""Chains on fewer elements stay as they are: a call costs more than they do."""
_MOST_INPUTS = 6


def compile_chains(
    model: ir.Model, kernels: Collection[str] = ()
) -> tuple[tuple[KernelSpec, ...], tuple[Adaptation, ...]]:
    """Make a node of each chain of elementwise nodes that is at least twice as fast in one loop, in place.

    Args:
        model: A model whose values have types and shapes.
        kernels: ``"domain::Op"`` of the nodes that have a kernel already, so that their function bodies do not run.

    Returns:
        The kernels of the chains, and the change.
    """
    found: dict[str, Chain] = {}
    changed: list[str] = []
    for scope in scopes(model):
        if isinstance(scope, ir.Function) and f"{scope.domain}::{scope.name}" in kernels:
            continue
        top = scope.graph if isinstance(scope, ir.Function) else scope
        for graph, nodes in [(inner, nodes) for inner in (top, *top.subgraphs()) for nodes in _chains(inner)]:
            chain, inputs = _chain_of(nodes)
            changed.extend(describe_node(node) for node in nodes)
            if chain.target not in found:
                found[chain.target] = chain
                function = _body(chain, nodes, inputs, scope.opset_imports)
                model.functions[function.identifier()] = function
            _replace(graph, nodes, chain, inputs)
            scope.opset_imports[DOMAIN] = 1
    if not found:
        return (), ()
    model.opset_imports[DOMAIN] = 1
    model.ir_version = max(model.ir_version, 8)
    file = write_kernels(list(found.values()))
    specs = tuple(KernelSpec(target, file, False, __name__) for target in found)
    return specs, (Adaptation("each chain of elementwise nodes is one loop", tuple(changed)),)


def _chains(graph: ir.Graph) -> Iterator[list[ir.Node]]:
    """The nodes of each chain, in order; the last one computes the result, and nothing else reads the others."""
    order = {node: position for position, node in enumerate(graph)}
    taken: set[ir.Node] = set()
    for sink in reversed(list(graph)):
        if sink in taken or not _is_element(sink):
            continue
        nodes = _grown(sink, taken)
        if _is_worth_it(nodes, sink.outputs[0].shape):
            taken |= nodes
            yield sorted(nodes, key=order.__getitem__)


def _grown(sink: ir.Node, taken: set[ir.Node]) -> set[ir.Node]:
    """The sink, and what is computed elementwise for it alone, with its shape."""
    (result,) = sink.outputs
    nodes = {sink}
    waiting = list(sink.inputs)
    while waiting:
        value = waiting.pop()
        node = value.producer() if value is not None else None
        if (
            node is not None
            and node not in nodes
            and node not in taken
            and node.graph is sink.graph
            and _is_element(node)
            and not value.is_graph_output()
            and are_equal(value.shape, result.shape)
            and all(user in nodes for user, _ in value.uses())
        ):
            nodes.add(node)
            waiting.extend(node.inputs)
            # A value that had another reader too may now be read by the chain only.
            waiting.extend(value for member in nodes for value in member.inputs)
    return nodes


def _is_element(node: ir.Node) -> bool:
    """Whether a node can be a link of a chain."""
    if node.domain or node.op_type not in ELEMENTWISE or len(node.outputs) != 1:
        return False
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(value.dtype not in _DTYPES or value.shape is None for value in values):
        return False
    ranks = [len(value.shape) for value in values if _number(value) is None]
    if max(ranks) != max(ranks[:-1], default=-1):
        return False  # The result has its rank from a constant, which will be no input of the chain.
    operand = values[-2].dtype
    if any(value.dtype is not operand for value in (values[1:-1] if node.op_type == "Where" else values[:-1])):
        return False
    if operand not in _FLOATS and node.op_type in _OF_FLOATS_ONLY:
        return False
    if node.op_type == "Cast":
        # Of a float that the integer can't hold, engines make different numbers.
        return operand not in _FLOATS or node.outputs[0].dtype in (*_FLOATS, ir.DataType.BOOL)
    if node.op_type in ("Max", "Min"):
        return len(node.inputs) == 2
    if node.op_type == "BitShift":
        return not operand.is_signed()
    if node.op_type == "IsInf":
        return all(node.attributes.get_int(name, 1) == 1 for name in ("detect_negative", "detect_positive"))
    return True


def _is_worth_it(nodes: set[ir.Node], shape: ir.Shape) -> bool:
    """Whether one loop is faster than the nodes, whose values have this shape."""
    inputs = _inputs_of(nodes)
    if not inputs or len(inputs) > _MOST_INPUTS:
        return False
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) == len(shape) and math.prod(sizes) < _SMALL:
        return False
    costs = [ELEMENTWISE[_function_of(node)] for node in nodes]
    engine = sum(cost.engine for cost in costs)
    return engine >= _GAIN * (_TRANSFER + sum(cost.kernel for cost in costs))


def _inputs_of(nodes: Sequence[ir.Node] | set[ir.Node]) -> list[ir.Value]:
    """What a chain reads, without numbers that are constants."""
    inside = set(nodes)
    values = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    return [value for value in values if value.producer() not in inside and _number(value) is None]


def _number(value: ir.Value) -> float | int | bool | None:
    """The constant that a value is; None if it is no constant of one element."""
    tensor = None if value.is_graph_input() else ir.convenience.get_const_tensor(value)
    return tensor.numpy().item() if tensor is not None and tensor.size == 1 else None


def _function_of(node: ir.Node) -> str:
    """The function of ``onnx_elements.h`` for a node, without template arguments."""
    if node.op_type == "Pow":
        base, exponent = map(_number, node.inputs)
        return "Exp2" if base == 2 else "Square" if exponent == 2 else "Cube" if exponent == 3 else "Pow"
    if node.op_type == "Clip" and len(node.inputs) == 2:
        return "Max"
    return "Min" if node.op_type == "Clip" and node.inputs[1] is None else node.op_type


def _chain_of(nodes: Sequence[ir.Node]) -> tuple[Chain, list[ir.Value]]:
    """A chain and what it reads."""
    inputs = _inputs_of(nodes)
    names = {value: f"x{i}" for i, value in enumerate(inputs)}
    names |= {node.outputs[0]: f"v{i}" for i, node in enumerate(nodes)}
    return Chain(
        tuple(_DTYPES[value.dtype] for value in inputs),
        _DTYPES[nodes[-1].outputs[0].dtype],
        tuple(Link(_with_template(node), _arguments(node, names)) for node in nodes),
    ), inputs


def _with_template(node: ir.Node) -> str:
    function = _function_of(node)
    return f"{function}<{DTYPES[_DTYPES[node.outputs[0].dtype]]}>" if node.op_type == "Cast" else function


def _arguments(node: ir.Node, names: dict[ir.Value, str]) -> tuple[str, ...]:
    read = {"Square": node.inputs[:1], "Cube": node.inputs[:1], "Exp2": node.inputs[1:]}
    values = [value for value in read.get(_function_of(node), node.inputs) if value is not None]
    found = [names.get(value) or literal(_number(value) or 0, _DTYPES[value.dtype]) for value in values]
    if node.op_type == "BitShift":
        found.append("true" if node.attributes.get_string("direction") == "RIGHT" else "false")
    if node.op_type == "LeakyRelu":
        found.append(literal(node.attributes.get_float("alpha", 0.01), _DTYPES[node.inputs[0].dtype]))
    return tuple(found)


def _body(chain: Chain, nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], opsets: dict[str, int]) -> ir.Function:
    """The nodes of a chain as an ONNX function, for inputs of any shapes."""
    mapped = {value: ir.Value(name=f"x{i}", type=value.type) for i, value in enumerate(inputs)}
    copies: list[ir.Node] = []
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in mapped:
                tensor = ir.tensor(ir.convenience.get_const_tensor(value).numpy())
                copies.append(ir.node("Constant", [], {"value": tensor}))
                mapped[value] = _named(copies[-1], f"c{len(copies)}")
        copies.append(
            ir.node(node.op_type, [mapped[v] if v is not None else None for v in node.inputs], dict(node.attributes))
        )
        mapped[node.outputs[0]] = _named(copies[-1], f"v{len(copies)}")
    graph = ir.Graph(
        [mapped[value] for value in inputs], [copies[-1].outputs[0]], nodes=copies, opset_imports={"": opsets[""]}
    )
    return ir.Function(DOMAIN, chain.name, graph=graph, attributes=[])


def _named(node: ir.Node, name: str) -> ir.Value:
    (value,) = node.outputs
    value.name = node.name = name
    return value


def _replace(graph: ir.Graph, nodes: Sequence[ir.Node], chain: Chain, inputs: Sequence[ir.Value]) -> None:
    sink = nodes[-1]
    (old,) = sink.outputs
    new = ir.node(chain.name, list(inputs), domain=DOMAIN, name=sink.name)
    new.metadata_props.update(sink.metadata_props)
    (value,) = new.outputs
    value.type, value.shape = old.type, old.shape
    value.name, old.name = old.name, f"{old.name}_of_nodes"
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.insert_before(sink, new)
    graph.remove(list(nodes), safe=True)
