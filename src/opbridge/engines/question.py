"""A node as a question to an engine that loads ONNX: a key for caching, and the smallest model that contains it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Question", "bare_model", "dtype_of_type"]

# Constants up to this size (scales, axes, shapes) keep their values in the question. Larger ones are weights.
_SMALL = 64
_LONGEST_AXES = 16
_TYPE_NAMES = {"float32": "float", "float64": "double", "str": "string"}


def _type_name(dtype: str) -> str:
    """ONNX's name of an element type: float8e5m2 for ml_dtypes' float8_e5m2."""
    return _TYPE_NAMES.get(dtype, dtype.replace("float8_", "float8"))


def dtype_of_type(name: str) -> str:
    """The dtype of an ONNX type: "float64" for ``"tensor(double)"``. Types of other values are returned unchanged."""
    element = name.removeprefix("tensor(").removesuffix(")")
    if "(" in element:
        return name
    named = {short: dtype for dtype, short in _TYPE_NAMES.items()}
    return named.get(element, element.replace("float8e", "float8_e"))


@functools.cache
def _dtype_name(dtype: ir.DataType) -> str:
    return "str" if dtype.is_string() else str(dtype.numpy().name)


def _engine_type(type_: Any) -> str | None:
    """A value's type as ONNX writes it: ``"tensor(float)"``, ``"seq(tensor(int64))"``; None if unknown."""
    import onnx_ir as ir

    if isinstance(type_, ir.SequenceType):
        return f"seq({_engine_type(type_.elem_type)})"
    if isinstance(type_, ir.OptionalType):
        return f"optional({_engine_type(type_.elem_type)})"
    if type_ is None or type_.dtype == ir.DataType.UNDEFINED:
        return None
    return f"tensor({_type_name(_dtype_name(type_.dtype))})"


class Question:
    """One node at one opset.

    Attributes:
        domain: The node's domain.
        op_type: The node's operator.
        opset: The version of the node's domain that the model imports.
        input_types: ONNX's name of each input's type; None for an absent input or an unknown type.
        output_types: ONNX's name of each output's type; None for an absent output or an unknown type.
        stands_alone: Whether a model of this node alone can be made: all types known, no subgraph, no attribute that
            is a parameter of an enclosing function.
        key: Equal for nodes that the engine can't tell apart.
    """

    def __init__(self, node: ir.Node, opset_imports: Mapping[str, int]) -> None:
        import onnx_ir as ir

        self._node = node
        self.domain, self.op_type = node.domain, node.op_type
        self._imports = {domain: opset_imports[domain] for domain in ("", node.domain) if domain in opset_imports}
        self.opset = node.version or self._imports.get(node.domain, 1)
        self._imports[node.domain] = self.opset
        self.input_types = [None if value is None else _engine_type(value.type) for value in node.inputs]
        # An output with an empty name is absent.
        self.output_types = [_engine_type(value.type) if value.name != "" else None for value in node.outputs]
        present = [name for value, name in zip(node.inputs, self.input_types, strict=True) if value is not None]
        graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        attributes = list(node.attributes.values())
        self.stands_alone = None not in present and not any(
            attribute.is_ref() or attribute.type in graphs for attribute in attributes
        )
        self._constants = [_small_constant(value) for value in node.inputs]
        self._is_constant_node = not node.domain and node.op_type == "Constant"
        self.key = (
            self.domain,
            self.op_type,
            tuple(sorted(self._imports.items())),
            tuple(self._input_key(position) for position in range(len(node.inputs))),
            tuple(zip(self.output_types, (value.name == "" for value in node.outputs), strict=True)),
            tuple(sorted(self._attribute_key(attribute) for attribute in attributes)),
        )

    def _input_key(self, position: int) -> Any:
        value = self._node.inputs[position]
        if value is None:
            return None
        constant = self._constants[position]
        contents = None if constant is None else (constant.shape.numpy(), _contents(constant))
        return self.input_types[position], _sizes(value), contents

    def _attribute_key(self, attribute: ir.Attr) -> tuple[str, str]:
        import onnx_ir as ir

        if attribute.is_ref():
            return attribute.name, f"@{attribute.ref_attr_name}"
        if attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            contents = b"" if self._is_constant_node else _contents(tensor)
            return attribute.name, f"{tensor.dtype} {tuple(tensor.shape)} {contents!r}"
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            return attribute.name, ""
        return attribute.name, repr(attribute.value)

    @property
    def sizes(self) -> tuple[tuple[int | None, ...] | None, ...]:
        """The known sizes of the inputs, for an engine whose answer depends on them."""
        shapes = [None if value is None else value.shape for value in self._node.inputs]
        return tuple(
            None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
            for shape in shapes
        )

    def model_bytes(self, ir_version: int, *, sized: bool = False) -> bytes:
        """A model of this node alone, serialized.

        Args:
            ir_version: The version of the ONNX IR.
            sized: Whether the inputs keep the known sizes of the node's inputs, or only their ranks.
        """
        import onnx_ir as ir

        inputs = [self._lone_input(position, sized) for position in range(len(self._node.inputs))]
        outputs = [
            ir.Value(name="" if value.name == "" else f"y{position}", type=value.type)
            for position, value in enumerate(self._node.outputs)
        ]
        node = ir.Node(
            self.domain, self.op_type, inputs, self._attributes(), overload=self._node.overload, outputs=outputs
        )
        graph = ir.Graph(
            [value for value in inputs if value is not None and value.const_value is None],
            [value for value in outputs if value.name],
            nodes=[node],
            initializers=[value for value in inputs if value is not None and value.const_value is not None],
            opset_imports=self._imports,
            name="question",
        )
        model = ir.Model(graph, ir_version=ir_version)
        serialized: bytes = ir.serde.serialize_model(model).SerializeToString()
        return serialized

    def _lone_input(self, position: int, sized: bool) -> ir.Value | None:
        import onnx_ir as ir

        value = self._node.inputs[position]
        if value is None:
            return None
        constant = self._constants[position]
        if constant is not None:
            return ir.Value(name=f"x{position}", type=value.type, shape=constant.shape, const_value=constant)
        sizes = self.sizes[position] if sized else _sizes(value)
        shape = None if sizes is None else ir.Shape(sizes)
        return ir.Value(name=f"x{position}", type=value.type, shape=shape)

    def _attributes(self) -> list[ir.Attr]:
        import onnx_ir as ir

        attributes = list(self._node.attributes.values())
        if not self._is_constant_node:
            return attributes
        # The contents of a Constant, which can be megabytes, are not part of the question.
        return [
            ir.AttrTensor(attribute.name, _one_element(attribute.as_tensor()))
            if attribute.type == ir.AttributeType.TENSOR
            else attribute
            for attribute in attributes
        ]


def bare_model(domain: str, op_type: str, opset_imports: Mapping[str, int], ir_version: int) -> bytes:
    """A serialized model of one node without inputs or attributes, to ask whether the engine knows the operator."""
    import onnx_ir as ir

    output = ir.Value(name="y", type=ir.TensorType(ir.DataType.FLOAT))
    imports = {name: opset_imports[name] for name in ("", domain) if name in opset_imports}
    node = ir.Node(domain, op_type, [], outputs=[output])
    graph = ir.Graph([], [output], nodes=[node], opset_imports={domain: 1, **imports}, name="question")
    serialized: bytes = ir.serde.serialize_model(ir.Model(graph, ir_version=ir_version)).SerializeToString()
    return serialized


def _sizes(value: ir.Value) -> tuple[int | None, ...] | None:
    """The sizes in a question: the rank, and the length of a short vector, which may have one element per axis."""
    if value.shape is None:
        return None
    if len(value.shape) == 1 and isinstance(value.shape[0], int) and value.shape[0] <= _LONGEST_AXES:
        return (value.shape[0],)
    return (None,) * len(value.shape)


def _contents(tensor: Any) -> bytes:
    """The contents of a tensor as bytes."""
    if tensor.dtype.is_string():
        return repr(list(tensor.string_data())).encode()
    data: bytes = tensor.tobytes()
    return data


def _one_element(tensor: Any) -> Any:
    """A tensor of one element (or none) in place of a large one, of the same type and rank."""
    import numpy as np
    import onnx_ir as ir

    if tensor.size <= _SMALL:
        return tensor
    return ir.tensor(np.zeros([1] * len(tensor.shape), tensor.dtype.numpy()), dtype=tensor.dtype)


def _small_constant(value: ir.Value | None) -> Any:
    """The tensor of a value that is a small constant of the model; None for any other."""
    import onnx_ir as ir

    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return tensor if tensor is not None and tensor.size <= _SMALL and value.type is not None else None
