"""Evaluates expressions of literals and module-level constants in a script."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import libcst as cst

__all__ = ["LookUp", "literal"]

LookUp = Callable[[cst.Name], cst.BaseExpression | None]
Call = Callable[[cst.Call], Any]
"""A function from a name to the only expression that a script assigns to it; None if there is no such expression."""

_WORDS = {"None": None, "True": True, "False": False}
_OPERATORS: dict[type[cst.BaseBinaryOp], Callable[[Any, Any], Any]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv,
    cst.Divide: operator.truediv,
    cst.Modulo: operator.mod,
}


def _unknown(call: cst.Call) -> Any:
    raise ValueError("a call is not a literal")


def literal(node: cst.CSTNode, look_up: LookUp = lambda name: None, called: Call = _unknown) -> Any:
    """Return the value of a literal expression; the value of a tuple is a list.

    Args:
        node: The expression.
        look_up: The function that finds the value of a name.
        called: The function that evaluates a call, or raises ValueError.

    Raises:
        ValueError: The expression is not a literal.
    """
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString | cst.ConcatenatedString):
        return node.evaluated_value
    if isinstance(node, cst.Name):
        return _named(node, look_up, called)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        return -literal(node.expression, look_up, called)
    if isinstance(node, cst.List | cst.Tuple):
        return [literal(element.value, look_up, called) for element in node.elements]
    if isinstance(node, cst.Dict):
        items = [item for item in node.elements if isinstance(item, cst.DictElement)]
        if len(items) == len(node.elements):
            return {literal(item.key, look_up, called): literal(item.value, look_up, called) for item in items}
    if isinstance(node, cst.BinaryOperation) and type(node.operator) in _OPERATORS:
        try:
            return _OPERATORS[type(node.operator)](
                literal(node.left, look_up, called), literal(node.right, look_up, called)
            )
        except (TypeError, ZeroDivisionError) as error:
            raise ValueError(f"{error}") from error
    if isinstance(node, cst.Call):
        return called(node)
    if isinstance(node, cst.FormattedString):
        return "".join(_part(part, look_up, called) for part in node.parts)
    raise ValueError(f"{type(node).__name__} is not a literal")


def _named(node: cst.Name, look_up: LookUp, called: Call) -> Any:
    if node.value in _WORDS:
        return _WORDS[node.value]
    meant = look_up(node)
    if meant is None:
        raise ValueError(f"{node.value} is not a constant")
    return literal(meant, look_up, called)


def _part(part: cst.BaseFormattedStringContent, look_up: LookUp, called: Call) -> str:
    if isinstance(part, cst.FormattedStringText):
        return part.value
    if isinstance(part, cst.FormattedStringExpression) and part.conversion is None and part.format_spec is None:
        return str(literal(part.expression, look_up, called))
    raise ValueError("a formatted string is not a literal")
