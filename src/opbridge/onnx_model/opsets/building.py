"""Creates new nodes next to a node, with inferred types and shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.inference import infer_outputs, infer_subgraphs, subgraphs_of
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.schemas import find_schema, mistyped, type_name
from opbridge.onnx_model.scopes import all_graphs, all_nodes

__all__ = ["Builder", "Names", "attribute_of"]


class Names:
    """A generator of names that no node and no value of the model has."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str | None] = set()
        self._next: dict[str, Iterator[int]] = {}
        for graph in all_graphs(model):
            self._taken.update(value.name for value in graph.inputs)
            self._taken.update(graph.initializers)
        for node in all_nodes(model):
            self._taken.add(node.name)
            self._taken.update(value.name for value in node.outputs)

    def fresh(self, wanted: str) -> str:
        """``wanted``, with a number appended if the name is taken."""
        name, numbers = wanted, self._next.setdefault(wanted, itertools.count(2))
        while name in self._taken:
            name = f"{wanted}_{next(numbers)}"
        self._taken.add(name)
        return name


class Builder:
    """A builder of nodes of one opset, which are inserted before a node.

    ``op.Add(x, y)`` creates a node and returns its output. An input may be a value, None, or a number or NumPy array,
    which becomes a constant; a Python number gets the dtype of the first input that has one.
    """

    def __init__(
        self,
        before: ir.Node,
        opset: int,
        names: Names,
        made: Callable[[ir.Node], None],
        inside: ir.Graph | None = None,
    ) -> None:
        self.opset = opset
        self._before = before
        self._names = names
        self._made = made
        self._inside = inside

    def graph(self, name: str, body: Callable[..., Sequence[ir.Value]], *inputs: ir.Value) -> ir.Graph:
        """A subgraph; ``body(builder, *inputs)`` creates its nodes with another builder and returns its outputs."""
        for value in inputs:
            value.name = self.fresh(f"{_label(self._before)}/{value.name or name}")
        graph = ir.Graph(inputs, [], nodes=[], name=self.fresh(name))
        inner = Builder(self._before, self.opset, self._names, self._made, graph)
        outputs = [
            value if (node := value.producer()) is not None and node.graph is graph else inner.Identity(value)
            for value in body(inner, *inputs)
        ]
        graph.outputs.extend(outputs)
        return graph

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.make(op_type, *inputs, **attributes)

    def make(self, op_type: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Create a node, and return its output or a tuple of its outputs."""
        given = [self._as_value(item, inputs) for item in inputs]
        while given and given[-1] is None:
            given.pop()
        present = {name: value for name, value in attributes.items() if value is not None}
        base = f"{_label(self._before)}/{op_type}"
        node = ir.Node(
            domain,
            op_type,
            given,
            [ir.Attr(name, *attribute_of(value)) for name, value in present.items()],
            outputs=[ir.Value(name=self._names.fresh(f"{base}_out")) for _ in range(outputs)],
            name=self._names.fresh(base),
            version=self.opset,
            metadata_props=dict(self._before.metadata_props),
        )
        self.insert(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def constant(self, array: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A constant with the array; ``dtype`` is for types that NumPy does not have."""
        value: ir.Value = self.make("Constant", value=ir.tensor(np.asarray(array), dtype=dtype))
        return value

    def like(self, number: Any, value: ir.Value) -> ir.Value:
        """A constant with the element type of ``value``.

        Raises:
            CannotExpress: The element type is not known.
        """
        dtype = value.dtype
        if dtype is None:
            raise CannotExpress(f"the element type of {value.name} is not known")
        return self.constant(np.asarray(number, dtype=dtype.numpy()), dtype)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """The value converted to another element type; the value itself if it already has that type."""
        result: ir.Value = value if value.dtype is dtype else self.make("Cast", value, to=int(dtype))
        return result

    def fresh(self, wanted: str) -> str:
        """A name that is not used in the model."""
        return self._names.fresh(wanted)

    def insert(self, node: ir.Node) -> None:
        """Insert an existing node and infer the types of its outputs."""
        if self._inside is not None:
            self._inside.append(node)
        else:
            assert self._before.graph is not None
            self._before.graph.insert_before(self._before, node)
        schema = find_schema(node.op_type, self.opset)
        if not node.domain and (wrong := mistyped(node, schema)):
            name = type_name(wrong[0][2].type)
            short = name[len("tensor(") : -1] if name.startswith("tensor(") else name
            raise CannotExpress(f"{node.op_type} of opset {self.opset} does not take {short}")
        if subgraphs_of(node):
            infer_subgraphs(node, self.opset)
        else:
            infer_outputs(node, self.opset)
        self._made(node)

    def register(self, node: ir.Node) -> None:
        """Register a node that was inserted by other means."""
        self._made(node)

    def adopt(self, node: ir.Node) -> None:
        """Insert a node of a function body with names that are unique in this model."""
        for inner in (node, *(inner for graph in subgraphs_of(node) for inner in graph.all_nodes())):
            inner.version = self.opset
            inner.name = self._names.fresh(f"{_label(self._before)}/{inner.op_type}")
            for output in inner.outputs:
                if output.name:
                    output.name = self._names.fresh(f"{inner.name}_out")
        for graph in subgraphs_of(node):
            for value in graph.inputs:
                value.name = self._names.fresh(f"{node.name}_in")
        node.metadata_props.update(self._before.metadata_props)
        self.insert(node)

    def _as_value(self, item: Any, inputs: tuple[Any, ...]) -> ir.Value | None:
        if item is None or isinstance(item, ir.Value):
            return item
        if isinstance(item, (int, float, bool)):
            typed = next((other for other in inputs if isinstance(other, ir.Value) and other.dtype is not None), None)
            if typed is not None:
                return self.like(item, typed)
        array = np.asarray(item)
        return self.constant(array.astype(np.int64) if array.dtype.kind == "i" and isinstance(item, list) else array)


def _label(node: ir.Node) -> str:
    """The prefix of the names of new nodes."""
    return node.name or next((value.name for value in node.outputs if value.name), None) or node.op_type


def attribute_of(value: Any) -> tuple[ir.AttributeType, Any]:
    """The type and the value of an attribute given as a Python object."""
    if isinstance(value, ir.Graph):
        return ir.AttributeType.GRAPH, value
    if isinstance(value, ir.TensorProtocol):
        return ir.AttributeType.TENSOR, value
    if isinstance(value, str):
        return ir.AttributeType.STRING, value
    if isinstance(value, float):
        return ir.AttributeType.FLOAT, value
    if isinstance(value, (int, np.integer)):
        return ir.AttributeType.INT, int(value)
    if value and isinstance(value[0], str):
        return ir.AttributeType.STRINGS, tuple(value)
    if value and isinstance(value[0], float):
        return ir.AttributeType.FLOATS, tuple(value)
    return ir.AttributeType.INTS, tuple(int(item) for item in value)
