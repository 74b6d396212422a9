"""The interface between a step and a node: its inputs, attributes and types, and methods to change or replace it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder, attribute_of
from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.inference import find_shape
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.schemas import attribute_default, find_schema

__all__ = ["Site", "normalized"]


class Site:
    """One node during a step from one opset to the next.

    Attributes:
        node: The node.
        opset: The node's current opset.
        target: The opset after the step.
        op: A builder of ``target`` nodes, which are inserted before the node.
        body: A builder of ``opset`` nodes, which are inserted before the node and then converted too.
    """

    def __init__(self, node: ir.Node, opset: int, target: int, op: Builder, body: Builder) -> None:
        self.node = node
        self.opset = opset
        self.target = target
        self.op = op
        self.body = body
        self.replaced = False

    def input(self, position: int) -> ir.Value | None:
        """The input at a position; None for an absent input."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def is_used(self, position: int) -> bool:
        """Whether the output at a position is used."""
        if position >= len(self.node.outputs):
            return False
        output = self.node.outputs[position]
        return bool(output.name) and bool(output.uses() or output.is_graph_output())

    def attribute(self, name: str) -> Any:
        """The value of an attribute as a Python object, otherwise its default, otherwise None."""
        found = self.node.attributes.get(name)
        if found is None:
            return attribute_default(find_schema(self.node.op_type, self.opset), name)
        if found.is_ref():
            raise CannotExpress(f"its attribute {name!r} is a parameter of the enclosing function")
        return list(found.value) if isinstance(found.value, tuple) else found.value

    def set(self, **attributes: Any) -> None:
        """Set attributes; None removes an attribute."""
        for name, value in attributes.items():
            self.node.attributes.pop(name, None)
            if value is not None:
                self.node.attributes[name] = ir.Attr(name, *attribute_of(value))

    def set_inputs(self, *inputs: ir.Value | None) -> None:
        """Replace the inputs; absent inputs at the end are removed."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        self.node.resize_inputs(len(given))
        for position, value in enumerate(given):
            self.node.replace_input_with(position, value)

    def constant(self, position: int, what: str) -> np.ndarray:
        """The value of an input that must be constant.

        Raises:
            CannotExpress: The input is computed at run time.
        """
        array = known(self.input(position))
        if array is None:
            raise CannotExpress(f"{what} must be constant, because opset {self.target} has it as an attribute")
        return array

    def rank(self, value: ir.Value | None, why: str = "neither is its shape") -> int:
        """The rank of a value.

        Raises:
            CannotExpress: The value is not known.
        """
        shape = None if value is None else find_shape(value)
        if shape is None:
            raise CannotExpress(f"the rank of {'an input' if value is None else value.name} is not known, and {why}")
        return len(shape)

    def dtype(self, value: ir.Value | None) -> ir.DataType:
        """The element type of a value.

        Raises:
            CannotExpress: The value is not known.
        """
        if value is None or value.dtype is None or value.dtype is ir.DataType.UNDEFINED:
            raise CannotExpress(f"the element type of {'an input' if value is None else value.name} is not known")
        return value.dtype

    def again(self, *inputs: Any, outputs: int | None = None, **changes: Any) -> Any:
        """A node of ``target`` with the same operator and attributes and other inputs; None removes an attribute."""
        kept = {name: self.attribute(name) for name in self.node.attributes if name not in changes}
        number = len(self.node.outputs) if outputs is None else outputs
        return self.op.make(self.node.op_type, *inputs, outputs=number, **kept, **changes)

    def replace(self, *values: ir.Value | None) -> None:
        """Replace the node's outputs by these values, which take over the names, and remove the node."""
        node = self.node
        graph = node.graph
        assert graph is not None
        for output, value in zip(node.outputs, values, strict=False):
            if value is not None and output.name:
                self._put(output, value)
        graph.remove(node, safe=True)
        self.replaced = True

    def _put(self, output: ir.Value, value: ir.Value) -> None:
        producer = value.producer()
        if value.dtype is not None and output.dtype is not None and value.dtype is not output.dtype:
            raise AssertionError(f"{self.node.op_type}: {output.dtype} became {value.dtype}")
        free = producer is not None and producer.graph is self.node.graph and not value.is_graph_output()
        if output.is_graph_output() and not (free and producer is not self.node):
            value = self.op.Identity(value)
            free = True
        name, type_, shape = output.name, output.type, output.shape
        output.replace_all_uses_with(value, replace_graph_outputs=True)
        if free and value.producer() is not None:
            output.name = None
            value.name = name
            value.type = type_ if type_ is not None else value.type
            value.shape = shape if shape is not None else value.shape


def normalized(axes: Sequence[int] | np.ndarray, rank: int) -> list[int]:
    """The axes as nonnegative numbers."""
    return [int(axis) % rank if rank else 0 for axis in np.asarray(axes).reshape(-1)]
