"""Rewrites a float32 model in a narrower type, except for given nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.surgery.edited import fresh_name, names_of_values, remove_unused
from opbridge.surgery.lazy_weights import converted_weight
from opbridge.surgery.shapes import infer_again

__all__ = ["Narrowed", "narrow"]

_FLOAT = ir.DataType.FLOAT


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """A model in a narrower type.

    Attributes:
        model: The model.
        narrow: The names of the nodes that compute in the narrower type.
        fixed: The reason for each node that can't compute in it, by name.
    """

    model: ir.Model
    narrow: frozenset[str]
    fixed: Mapping[str, str]

    @property
    def count(self) -> int:
        """The number of nodes that compute in the narrower type."""
        return len(self.narrow)


def narrow(model: ir.Model, dtype: ir.DataType, kept: frozenset[str], *, keep_io: bool) -> Narrowed:
    """A copy of ``model`` in ``dtype``.

    Args:
        model: The model; its values have types and its nodes have names.
        dtype: The narrower type.
        kept: The nodes that stay float32.
        keep_io: Whether inputs and outputs stay float32.
    """
    work = _Work(model.clone(), dtype)
    work.take_inputs(keep_io)
    for node in list(work.graph):
        work.rewrite(node, str(node.name) in kept)
    work.give_outputs(keep_io)
    infer_again(work.model)
    return Narrowed(work.model, frozenset(work.narrow), work.fixed)


class _Work:
    """Rewrites nodes. The form of each float32 value in each type is created when it is first needed."""

    def __init__(self, model: ir.Model, dtype: ir.DataType) -> None:
        self.model = model
        self.graph = model.graph
        self.narrow: set[str] = set()
        self.fixed: dict[str, str] = {}
        self._dtype = dtype
        self._opset = model.opset_imports.get("", 1)
        self._forms: dict[ir.Value, dict[ir.DataType, ir.Value]] = {}
        self._taken = names_of_values(model)

    def take_inputs(self, keep_io: bool) -> None:
        """Narrow the inputs, or leave them as they are."""
        for value in self.graph.inputs:
            if value.dtype is _FLOAT and value.const_value is None:
                if not keep_io:
                    value.type = ir.TensorType(self._dtype)
                self._forms[value] = {_FLOAT if keep_io else self._dtype: value}

    def rewrite(self, node: ir.Node, kept: bool) -> None:
        """Give the node inputs in the type in which it computes."""
        reason = self._obstacle(node)
        concerned = any(value is not None and self._is_float(value) for value in (*node.inputs, *node.outputs))
        if reason and concerned:
            self.fixed[str(node.name)] = reason
        wide = kept or bool(reason)
        schema = self._schema(node)
        for position, value in enumerate(node.inputs):
            if value is not None and self._is_float(value):
                type_ = _FLOAT if wide or not self._takes(schema, position, "inputs") else self._dtype
                node.replace_input_with(position, self._form(value, type_, node))
        if reason:
            self._widen_captured(node)
        elif not wide:
            self._narrow_attributes(node)
        for position, value in enumerate(node.outputs):
            if value.dtype is _FLOAT:
                given = _FLOAT if wide or not self._takes(schema, position, "outputs") else self._dtype
                if node.op_type == "Cast" and not node.domain:
                    given = ir.DataType(node.attributes["to"].as_int())
                value.type = ir.TensorType(given)
                self._forms[value] = {given: value}
        if concerned and not wide:
            self.narrow.add(str(node.name))

    def _obstacle(self, node: ir.Node) -> str:
        """Why the node can only compute in float32; empty if it can compute in the narrower type."""
        if any(item.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for item in node.attributes.values()):
            return f"{node.op_type} has a subgraph"
        schema = self._schema(node)
        if node.domain or schema is None:
            return f"{node.op_type} is a custom operator"
        values = [("inputs", p) for p, v in enumerate(node.inputs) if v is not None and self._is_float(v)]
        values += [("outputs", p) for p, v in enumerate(node.outputs) if v.dtype is _FLOAT]
        if values and not any(self._takes(schema, position, side) for side, position in values):
            return f"{node.op_type} takes no {self._dtype.name.lower()}"
        return ""

    def _schema(self, node: ir.Node) -> Any:
        try:
            return onnx.defs.get_schema(node.op_type, self._opset, "") if not node.domain else None
        except onnx.defs.SchemaError:
            return None

    def _takes(self, schema: Any, position: int, side: str) -> bool:
        """Whether the operator's schema allows the narrower type at this position."""
        if schema is None:
            return False
        formal = getattr(schema, side)
        if not formal:
            return False
        parameter = formal[min(position, len(formal) - 1)]
        wanted = f"tensor({self._dtype.name.lower()})"
        for constraint in schema.type_constraints:
            if constraint.type_param_str == parameter.type_str:
                return wanted in constraint.allowed_type_strs
        return bool(parameter.type_str == wanted)

    def _is_float(self, value: ir.Value) -> bool:
        return value in self._forms or value.dtype is _FLOAT

    def _form(self, value: ir.Value, dtype: ir.DataType, before: ir.Node | None) -> ir.Value:
        """The value in a type, created by a Cast inserted before ``before``, or by converting a weight."""
        forms = self._forms.setdefault(value, {_FLOAT: value})
        if dtype not in forms:
            tensor = value.const_value
            if tensor is not None and not value.is_graph_input():
                forms[dtype] = self._converted(value, tensor, dtype)
            else:
                forms[dtype] = self._cast(next(iter(forms.values())), dtype, before)
        return forms[dtype]

    def _converted(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.Value:
        made = converted_weight(tensor, fresh_name(f"{value.name}_{dtype.name.lower()}", self._taken), dtype)
        self.graph.register_initializer(made)
        return made

    def _cast(self, value: ir.Value, dtype: ir.DataType, before: ir.Node | None) -> ir.Value:
        node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))])
        node.name = fresh_name(f"Cast_{value.name}", self._taken)
        node.outputs[0].name = fresh_name(f"{value.name}_{dtype.name.lower()}", self._taken)
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(dtype), value.shape
        producer = value.producer()
        if producer is not None:
            self.graph.insert_after(producer, node)
        elif len(self.graph):
            self.graph.insert_before(self.graph[0], node)
        else:
            self.graph.append(node)
        return node.outputs[0]

    def _widen_captured(self, node: ir.Node) -> None:
        """Make the subgraphs of a node read float32 values."""
        for attribute in node.attributes.values():
            graphs = []
            if attribute.type is ir.AttributeType.GRAPH:
                graphs = [attribute.as_graph()]
            elif attribute.type is ir.AttributeType.GRAPHS:
                graphs = list(attribute.as_graphs())
            for graph in graphs:
                for inner in graph.all_nodes():
                    for position, value in enumerate(inner.inputs):
                        if value is not None and value in self._forms:
                            inner.replace_input_with(position, self._form(value, _FLOAT, node))
                for position, value in enumerate(graph.outputs):
                    if value in self._forms:
                        graph.outputs[position] = self._form(value, _FLOAT, node)

    def _narrow_attributes(self, node: ir.Node) -> None:
        for name in ("to", "dtype"):
            given = node.attributes.get(name)
            if given is not None and given.type is ir.AttributeType.INT and given.as_int() == int(_FLOAT):
                node.attributes[name] = ir.AttrInt64(name, int(self._dtype))
        given = node.attributes.get("value")
        if given is not None and given.type is ir.AttributeType.TENSOR and given.as_tensor().dtype is _FLOAT:
            array = given.as_tensor().numpy().astype(self._dtype.numpy())
            node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(array, dtype=self._dtype))
        if node.op_type == "Constant" and node.outputs[0].dtype is _FLOAT and "value" not in node.attributes:
            numbers = next(iter(node.attributes.values())).value
            array = np.array(numbers, np.float32).astype(self._dtype.numpy())
            node.attributes.clear()
            node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(array, dtype=self._dtype))
        if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
            array = np.zeros(1, self._dtype.numpy())
            node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(array, dtype=self._dtype))

    def give_outputs(self, keep_io: bool) -> None:
        """Give every float32 output its final type under its original name."""
        wanted = _FLOAT if keep_io else self._dtype
        for position, value in enumerate(self.graph.outputs):
            forms = self._forms.get(value)
            if forms is None or (wanted in forms and forms[wanted] is value):
                continue
            form = self._form(value, wanted, None)
            name = value.name
            value.name = fresh_name(f"{name}_inner", self._taken)
            form.name = name
            form.shape = value.shape
            self.graph.outputs[position] = form
        unused = [value for value in self.graph.initializers.values() if not value.uses()]
        remove_unused(self.graph, [], unused)
