"""What the expressions and statements of a function are, for its conversion."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from opbridge.capture.control_flow.generators import reason_to_stay_generator, yields
from opbridge.capture.control_flow.names import MESSAGES

__all__ = ["COMPARED", "binds", "has_no_result", "is_simple", "prints", "reason_not_to_convert"]


COMPARED: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Eq: ("equality", False), ast.NotEq: ("equality", True), ast.Is: ("identity", False),
    ast.IsNot: ("identity", True), ast.In: ("contains", False), ast.NotIn: ("contains", True),
}  # fmt: skip
"""The function that a conversion puts in the place of a comparison, and whether it negates the result."""


def has_no_result(block: Sequence[ast.stmt]) -> bool:
    """Whether statements only raise an error or only print."""
    if isinstance(block[-1], ast.Raise):
        return True
    return all(isinstance(one, ast.Expr) and prints(one.value) for one in block)


def prints(expression: ast.expr) -> bool:
    """Whether an expression is a call that prints or logs a message, or a text."""
    if isinstance(expression, ast.Constant):
        return True
    function = expression.func if isinstance(expression, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in MESSAGES


_SIMPLE = (ast.Name, ast.Constant, ast.Attribute, ast.Compare, ast.UnaryOp, ast.BoolOp, ast.BinOp, ast.expr_context)
_SIMPLE_OPERATORS = (ast.cmpop, ast.unaryop, ast.boolop, ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr)


_DIVIDING = (ast.Mod, ast.FloorDiv, ast.Div)


def is_simple(expression: ast.AST) -> bool:
    """Whether an expression can be computed where Python would not compute it: it costs little and can't fail."""
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, _DIVIDING):
        divisor = expression.right.value if isinstance(expression.right, ast.Constant) else 0
        return isinstance(divisor, (int, float)) and divisor != 0 and is_simple(expression.left)
    known = (*_SIMPLE, *_SIMPLE_OPERATORS)
    return isinstance(expression, known) and all(map(is_simple, ast.iter_child_nodes(expression)))


def binds(expression: ast.expr) -> bool:
    """Whether an expression assigns a variable, which a lambda would keep to itself."""
    return any(isinstance(node, (ast.NamedExpr, ast.Await)) for node in ast.walk(expression))


def reason_not_to_convert(function: ast.AST) -> str | None:
    """Why a function can't be rewritten; None if it can."""
    if isinstance(function, ast.AsyncFunctionDef):
        return "it is in an async function"
    if not isinstance(function, ast.FunctionDef):
        return "it is not in a function"
    return reason_to_stay_generator(function) if yields(function) else None
