"""Converts ``g.op("Constant", ...)`` to a number, list or tensor."""

from __future__ import annotations

import libcst as cst

from opbridge.legacy.migrate.literals import literal
from opbridge.legacy.migrate.script import EQUAL, Script

__all__ = ["constant_value", "is_arithmetic"]

_ARITHMETIC = {
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "Equal", "Greater", "Less", "GreaterOrEqual",
    "LessOrEqual", "Clip",
}  # fmt: skip

_TENSOR_OF = {"torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.LongTensor"}


def is_arithmetic(name: cst.CSTNode) -> bool:
    """Return whether the inputs of an operator have one type, which a Python number takes from the others."""
    return isinstance(name, cst.SimpleString) and str(name.evaluated_value).rpartition("::")[2] in _ARITHMETIC


def constant_value(
    script: Script, original: cst.Call, updated: cst.Call, arithmetic: bool
) -> cst.BaseExpression | None:
    """Return the onnxscript expression for the constant; None if its contents are unknown.

    Args:
        script: The script.
        original: The call of ``g.op`` in the script.
        updated: The same call with its arguments converted.
        arithmetic: Whether the constant is only an operand of arithmetic. The old exporter converted an integer operand
            to the type of the other operand, and so does onnxscript for a number, but not for a list.
    """
    for argument, converted in zip(original.args[1:], updated.args[1:], strict=True):
        key = argument.keyword.value if argument.keyword is not None else ""
        if key in ("value_f", "value_i"):
            return converted.value
        if key == "value_s":
            script.needs.add("op")
            text = cst.Arg(converted.value, cst.Name("value_string"), equal=EQUAL)
            return cst.Call(cst.parse_expression("op.Constant"), [text])
        if key != "value_t":
            return None
        plain = _plain(script, argument.value, arithmetic)
        if plain is not None:
            return plain
        script.needs |= {"op", "ir"}
        tensor = cst.Call(cst.parse_expression("ir.tensor"), [cst.Arg(converted.value)])
        return cst.Call(cst.parse_expression("op.Constant"), [cst.Arg(tensor, cst.Name("value"), equal=EQUAL)])
    return None


def _plain(script: Script, tensor: cst.BaseExpression, arithmetic: bool) -> cst.BaseExpression | None:
    """Return the contents of ``torch.tensor(...)`` if a Python value is equivalent; otherwise None."""
    if not isinstance(tensor, cst.Call) or script.path(tensor.func) not in _TENSOR_OF or not tensor.args:
        return None
    contents = tensor.args[0].value
    dtypes = [script.path(item.value) for item in tensor.args[1:] if item.keyword and item.keyword.value == "dtype"]
    if len(tensor.args) - 1 != len(dtypes) or not set(dtypes) <= {
        "torch.float32",
        "torch.float",
        "torch.int64",
        "torch.long",
    }:
        return None
    if isinstance(contents, cst.Name):
        return contents if arithmetic or not dtypes else None
    elements = contents.elements if isinstance(contents, cst.List | cst.Tuple) else None
    if elements is not None and len(elements) == 1 and arithmetic:
        return elements[0].value
    if elements is not None and all(isinstance(item.value, cst.Name) for item in elements) and elements:
        return contents if dtypes in (["torch.int64"], ["torch.long"]) else None
    try:
        value = literal(contents)
    except ValueError:
        return None
    flat = value if isinstance(value, list) else [value]
    kinds = {type(item) for item in flat}
    if not flat or len(kinds) != 1 or not kinds <= {int, float}:
        return None
    if dtypes and ("float" in dtypes[0]) != (kinds == {float}):
        return None
    return contents
