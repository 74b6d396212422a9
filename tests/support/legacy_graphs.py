"""ONNX models in a form that can be compared node for node, and the TorchScript exporter as an oracle."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from legacy_cases.table import Case
from onnx import numpy_helper


@dataclasses.dataclass(frozen=True)
class Tree:
    """What computes a value, down to the graph's inputs and constants. Names are left out."""

    operator: str
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[Any, ...]
    output: int

    def __str__(self) -> str:
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes)
        return f"{self.operator}[{self.output}]{{{attributes}}}({', '.join(map(str, self.inputs))})"


def output_trees(model: onnx.ModelProto) -> list[Any]:
    """One entry per output of the graph: its element type, and the tree that computes it."""
    inputs = {value.name: f"input {i}" for i, value in enumerate(model.graph.input)}
    value_of = _graph_values(model.graph, inputs)
    return [(value.type.tensor_type.elem_type, value_of(value.name)) for value in model.graph.output]


def _graph_values(graph: onnx.GraphProto, outer: Mapping[str, Any]) -> Any:
    known: dict[str, Any] = {"": None, **outer}
    known.update({tensor.name: _constant(tensor) for tensor in graph.initializer})
    producers = {name: (node, i) for node in graph.node for i, name in enumerate(node.output)}

    def value_of(name: str) -> Any:
        if name not in known:
            node, position = producers[name]
            known[name] = _node(node, position, value_of, known)
        return known[name]

    for node in graph.node:
        for name in node.output:
            value_of(name)
    return value_of


def _node(node: onnx.NodeProto, position: int, value_of: Any, known: dict[str, Any]) -> Any:
    if node.op_type == "Constant" and not node.domain:
        return _constant_node(node)
    inputs = [value_of(name) for name in node.input]
    if node.op_type == "Identity":
        return inputs[0]
    while inputs and inputs[-1] is None:
        inputs.pop()
    attributes = tuple(sorted((item.name, _attribute(item, known)) for item in node.attribute))
    domain = "" if node.domain == "ai.onnx" else node.domain
    return Tree(f"{domain}::{node.op_type}", _with_defaults(node, attributes), tuple(inputs), position)


def _with_defaults(node: onnx.NodeProto, attributes: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Without attributes that say what the operator's schema says anyway."""
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
        return attributes
    defaults = {
        name: _attribute(attribute.default_value, {})
        for name, attribute in onnx.defs.get_schema(node.op_type, 20).attributes.items()
        if attribute.default_value.type
    }
    return tuple((name, value) for name, value in attributes if name not in defaults or defaults[name] != value)


def _attribute(attribute: onnx.AttributeProto, known: Mapping[str, Any]) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.GRAPH:
        inside = {item.name: f"own input {i}" for i, item in enumerate(value.input)}
        value_of = _graph_values(value, {**known, **inside})
        return tuple(value_of(item.name) for item in value.output)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _constant(value)
    if attribute.type == onnx.AttributeProto.TENSORS:
        return tuple(map(_constant, value))
    if attribute.type == onnx.AttributeProto.FLOATS:
        return tuple(float(item) for item in value)
    return tuple(value) if isinstance(value, list) else value


def _constant_node(node: onnx.NodeProto) -> Any:
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return _constant(value)
    dtypes: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32, "value_string": object}
    return _array(np.asarray(value, dtypes.get(attribute.name, np.int64)))


def _constant(tensor: onnx.TensorProto) -> Any:
    return _array(numpy_helper.to_array(tensor))


def _array(array: np.ndarray) -> tuple[str, tuple[int, ...], Any]:
    values = [item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    return str(array.dtype), array.shape, tuple(values)


@contextlib.contextmanager
def registered(*cases: Case, for_oracle: bool = False) -> Iterator[None]:
    """With the registrations that ``cases`` need."""
    setups = [case.oracle_setup if for_oracle and case.oracle_setup else case.setup for case in cases]
    undo = []
    try:
        for setup in dict.fromkeys(filter(None, setups)):
            setup()
        undo = list(dict.fromkeys(item for case in cases for item in case.undo))
        yield
    finally:
        for name, opset in undo:
            torch.onnx.unregister_custom_op_symbolic(name, opset)


def export_with_torchscript(case: Case, dynamic: bool) -> onnx.ModelProto:
    """What the TorchScript exporter makes of a case."""
    file = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), registered(case, for_oracle=True):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            case.model(),
            case.inputs,
            file,
            dynamo=False,
            opset_version=case.opset,
            input_names=case.input_names,
            dynamic_axes=case.dynamic_axes if dynamic else None,
            custom_opsets=dict.fromkeys(case.domains, 1),
            **({"operator_export_type": torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH} if case.kept else {}),
        )
    return onnx.load_from_string(file.getvalue())
