"""Nodes in a custom domain, for use in translations."""

from __future__ import annotations

from typing import Any

from opbridge.errors import InputError

__all__ = ["custom_node"]


def custom_node(operator: str, /, *inputs: Any, num_outputs: int = 1, overload: str = "", **attributes: Any) -> Any:
    """Add a node in a custom domain to the graph that a translation is building.

    The outputs keep the dtypes and shapes known to PyTorch, so later nodes can use them.

    Args:
        operator: The node's operator, ``"domain::Op"``.
        inputs: ONNX values; None for an absent optional input.
        num_outputs: The number of outputs of the node.
        overload: The overload of the model-local function that the node calls (IR version 10), if there are several.
        attributes: The node's attributes: int, float, bool (stored as int), str, a tensor, or a list of ints, floats,
            strings or tensors. An attribute of None is omitted.

    Returns:
        The output value, or a tuple of values if there are several outputs.

    Raises:
        InputError: ``operator`` is malformed.
    """
    import onnx
    import onnxscript

    domain, separator, name = operator.partition("::")
    if not separator or not domain or not name:
        raise InputError(
            f"custom_node({operator!r}): the operator of a custom node has the form 'domain::Op'.",
            fix="write, for example, custom_node('mylib::MyOp', x).",
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
    """A schema that accepts any tensor; it does not have to be registered."""
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
