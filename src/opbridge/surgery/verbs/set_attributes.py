"""Set and remove attributes of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.edited import Change, Edited, describe, find_node, finished, model_of
from opbridge.surgery.shapes import infer_again

__all__ = ["set_attributes", "typed_attribute"]


def set_attributes(
    model: Any, node: str, attributes: Mapping[str, Any] | None = None, *, drop: Sequence[str] = ()
) -> Edited:
    """Set attributes of a node, or remove them so that their defaults apply.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        node: The name of the node or of one of its outputs.
        attributes: The new attributes: numbers, strings, lists of these, or arrays. For a standard operator, each
            must be an attribute of the operator, and is converted to the declared type.
        drop: The names of the attributes to remove.

    Raises:
        InputError: The node or an attribute does not exist, a type does not fit, or the result would be invalid.
    """
    own = model_of(model)
    found = find_node(own, node)
    opset = own.opset_imports.get("", 1)
    changes = []
    for name, value in (attributes or {}).items():
        before = found.attributes.get(name)
        found.attributes[name] = typed_attribute(
            found.domain, found.op_type, opset, name, value, None if before is None else before.type
        )
        shown = "" if before is None else f" instead of {_shown(before.value)}"
        changes.append(Change(f"{name} is {_shown(value)}{shown}", (describe(found),)))
    for name in drop:
        if name not in found.attributes:
            raise InputError(
                f"The node {describe(found)!r} has no attribute {name!r}.", fix=did_you_mean(name, found.attributes)
            )
        del found.attributes[name]
        changes.append(Change(f"{name} is dropped", (describe(found),)))
    infer_again(own)
    return finished(model, own, changes)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"  # An attribute is a float32.
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 60 else f"{text[:57]}..."


def typed_attribute(
    domain: str, op_type: str, opset: int, name: str, value: Any, before: ir.AttributeType | None = None
) -> ir.Attr:
    """Create an attribute with the type that its operator declares.

    Args:
        domain: The domain of the operator; only operators of the standard domain have known attributes.
        op_type: The operator.
        opset: The version of the standard domain.
        name: The name of the attribute.
        value: The value of the attribute.
        before: The previous type of the attribute; None if it is new.

    Raises:
        InputError: The operator has no such attribute, or the attribute has another type.
    """
    kind = before
    if not domain:
        try:
            schema = onnx.defs.get_schema(op_type, opset, "")
        except onnx.defs.SchemaError as error:
            raise InputError(
                f"ONNX has no operator {op_type!r} at opset {opset}.",
                fix=did_you_mean(op_type, {item.name for item in onnx.defs.get_all_schemas()}),
            ) from error
        if name not in schema.attributes:
            raise InputError(
                f"{op_type} has no attribute {name!r} at opset {opset}.", fix=did_you_mean(name, schema.attributes)
            )
        kind = ir.AttributeType(int(schema.attributes[name].type.value))
    try:
        return _converted(name, kind, value)
    except (TypeError, ValueError) as error:
        wanted = "" if kind is None else f": it takes {kind.name.lower()}"
        raise InputError(
            f"{value!r} can't be the attribute {name!r} of {op_type}{wanted}.", fix="give it a value of that type."
        ) from error


def _converted(name: str, kind: ir.AttributeType | None, value: Any) -> ir.Attr:
    if isinstance(value, np.ndarray):
        value = ir.tensor(value)
    if kind is ir.AttributeType.INT and int(value) != value:
        raise ValueError(value)
    makers: dict[Any, Any] = {
        ir.AttributeType.INT: lambda: ir.AttrInt64(name, int(value)),
        ir.AttributeType.FLOAT: lambda: ir.AttrFloat32(name, float(value)),
        ir.AttributeType.STRING: lambda: ir.AttrString(name, _text(value)),
        ir.AttributeType.INTS: lambda: ir.AttrInt64s(name, [int(item) for item in _items(value)]),
        ir.AttributeType.FLOATS: lambda: ir.AttrFloat32s(name, [float(item) for item in _items(value)]),
        ir.AttributeType.STRINGS: lambda: ir.AttrStrings(name, [_text(item) for item in _items(value)]),
        ir.AttributeType.TENSOR: lambda: ir.AttrTensor(name, value if hasattr(value, "dtype") else _tensor(value)),
    }
    if kind in makers:
        made: ir.Attr = makers[kind]()
        return made
    return ir.convenience.convert_attribute(name, int(value) if isinstance(value, bool) else value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _items(value: Any) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(value)
    return value


def _tensor(value: Any) -> ir.TensorProtocol:
    array = np.array(value)
    return ir.tensor(array.astype(np.float32) if array.dtype == np.float64 else array)
