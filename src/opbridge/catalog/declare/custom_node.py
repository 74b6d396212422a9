"""Nodes of a custom domain, for use inside a translation."""

from __future__ import annotations

from typing import Any

from opbridge.errors import InputError

__all__ = ["custom_node"]


def custom_node(operator: str, /, *inputs: Any, num_outputs: int = 1, overload: str = "", **attributes: Any) -> Any:
    """Add a node of a custom domain to the graph that a translation is building.

    The node keeps the dtype and shape that PyTorch knows for its outputs, so later nodes see them.

    Args:
        operator: ``"domain::Op"``.
        inputs: ONNX values; None for an optional input that is absent.
        num_outputs: How many outputs the node has.
        overload: The function overload that serves it (IR version 10), where it has several bodies.
        attributes: int, float, bool (stored as int), str, a tensor, or a list of ints, floats, strings or tensors.
            None is left out.

    Returns:
        The output value, or a tuple of them if there are several.
    """
    import onnx
    import onnxscript

    domain, separator, name = operator.partition("::")
    if not separator or not domain or not name:
        raise InputError(
            f"custom_node({operator!r}): a custom node is named 'domain::Op'.",
            fix="write for example custom_node('mylib::MyOp', x).",
        )
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    present = {key: _attribute(key, value) for key, value in attributes.items() if value is not None}
    schema = _schema(onnx, domain, name, len(inputs), num_outputs, present)
    node_builder = onnxscript.values.Op(onnxscript.values.Opset(domain, 1), name, op_schema=schema)
    outputs = node_builder(*inputs, **present)
    first = outputs if num_outputs == 1 else outputs[0]
    if overload:
        first.producer().overload = overload
    return outputs if num_outputs == 1 else tuple(outputs)


def _attribute(key: str, value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, float) for item in value):
            return [float(item) for item in value]
        return [int(item) if isinstance(item, bool) else item for item in value]
    return value


def _attribute_type(onnx: Any, value: Any) -> Any:
    kinds = onnx.defs.OpSchema.AttrType
    single = {int: kinds.INT, float: kinds.FLOAT, str: kinds.STRING}
    several = {int: kinds.INTS, float: kinds.FLOATS, str: kinds.STRINGS}
    if isinstance(value, list):
        return several.get(type(value[0]), kinds.TENSORS) if value else kinds.INTS
    return single.get(type(value), kinds.TENSOR)


def _schema(onnx: Any, domain: str, name: str, inputs: int, outputs: int, attributes: dict[str, Any]) -> Any:
    """A schema that lets any tensor through; it need not be registered anywhere."""
    defs = onnx.defs.OpSchema
    optional = defs.FormalParameterOption.Optional
    return defs(
        name,
        domain,
        1,
        "",
        inputs=[defs.FormalParameter(f"input_{i}", f"TI{i}", "", param_option=optional) for i in range(inputs)],
        outputs=[defs.FormalParameter(f"output_{i}", f"TO{i}") for i in range(outputs)],
        type_constraints=[
            (variable, _TENSOR_TYPES, "any tensor")
            for variable in [f"TI{i}" for i in range(inputs)] + [f"TO{i}" for i in range(outputs)]
        ],
        attributes=[
            defs.Attribute(key, _attribute_type(onnx, value), "", required=False) for key, value in attributes.items()
        ],
    )


_FLOATS = ["float16", "float", "double", "bfloat16", "complex64", "complex128"]
_INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
_TENSOR_TYPES = [f"tensor({name})" for name in [*_FLOATS, *_INTEGERS, "bool", "string"]]
