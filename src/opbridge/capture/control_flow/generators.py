"""Writes a generator as a function that returns a list of what it yields.

The list is complete before the first element is used, which is the same if neither the generator nor the code that uses
it changes what the other one reads.
"""

from __future__ import annotations

import ast

from opbridge.capture.control_flow.exits import PREFIX, at
from opbridge.capture.control_flow.names import inside

__all__ = ["YIELDED", "reason_to_stay_generator", "returning_list", "without_yield", "yields"]

YIELDED = f"{PREFIX}yielded"
"""The variable with the list."""

_YIELDS = (ast.Yield, ast.YieldFrom)


def yields(function: ast.FunctionDef) -> bool:
    """Whether a function is a generator."""
    return any(isinstance(node, _YIELDS) for node in inside(function.body))


def reason_to_stay_generator(function: ast.FunctionDef) -> str | None:
    """Why a generator can't return a list; None if it can."""
    nodes = list(inside(function.body))
    statements = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, _YIELDS)]
    if len(statements) < sum(isinstance(node, _YIELDS) for node in nodes):
        return f"the generator {function.name!r} uses the value of a yield"
    if any(isinstance(node, ast.Return) and node.value is not None for node in nodes):
        return f"the generator {function.name!r} returns a value"
    if function.decorator_list or function.name.startswith("__") or any(one.value.value is None for one in statements):  # type: ignore[attr-defined]
        return f"{function.name!r} is a generator that other code runs step by step"
    return None


def without_yield(function: ast.FunctionDef, file: str, flow: str) -> list[ast.stmt]:
    """The body of a function; that of a generator adds what it yields to a list.

    Args:
        function: The function.
        file: Its file.
        flow: The name of the module with ``add_yielded`` in the converted code.
    """
    if not yields(function):
        return function.body
    _Lists(file, flow).generic_visit(function)
    first, last = function.body[0], function.body[-1]
    start = at(ast.Assign([ast.Name(YIELDED, ast.Store())], ast.List([], ast.Load())), first)
    return [start, *function.body, at(ast.Return(ast.Constant(None)), last)]


def returning_list(body: list[ast.stmt], flow: str) -> list[ast.stmt]:
    """The body of a generator, with a ``return`` at its end only, that returns this list."""
    if not isinstance(body[-1], ast.Return):
        return body
    return [*body[:-1], at(ast.Return(_call(flow, "yielded")), body[-1])]


class _Lists(ast.NodeTransformer):
    """``yield x`` as a call that adds ``x`` to the list."""

    def __init__(self, file: str, flow: str) -> None:
        self._file, self._flow = file, flow

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef  # type: ignore[assignment]

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        value = node.value
        if isinstance(value, ast.Yield) and value.value is not None:
            return at(self._add(value.value, node), node)
        if not isinstance(value, ast.YieldFrom):
            return node
        item = f"{PREFIX}one"
        add = self._add(ast.Name(item, ast.Load()), node)
        return at(ast.For(ast.Name(item, ast.Store()), value.value, [add], []), node)

    def _add(self, value: ast.expr, node: ast.stmt) -> ast.stmt:
        line: list[ast.expr] = [ast.Constant(one) for one in (self._file, node.lineno, False)]
        site = ast.Call(ast.Attribute(ast.Name(self._flow, ast.Load()), "Site", ast.Load()), line, [])
        return ast.Expr(_call(self._flow, "add_yielded", value, site))


def _call(flow: str, function: str, *values: ast.expr) -> ast.Call:
    owner = ast.Attribute(ast.Name(flow, ast.Load()), function, ast.Load())
    return ast.Call(owner, [ast.Name(YIELDED, ast.Load()), *values], [])
