"""Writes ``:=`` in conditions as assignments, because a branch that is traced can't contain it."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from opbridge.capture.control_flow.exits import PREFIX, at, change_blocks, own_exits

__all__ = ["without_walrus"]

_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def without_walrus(block: Sequence[ast.stmt], numbers: Iterator[int] | None = None) -> list[ast.stmt]:
    """The statements, with assignments before those with ``:=`` in conditions.

    ::

        if (a := f(x)) > 0 and (b := g(a)):        a = f(x)
            return b                               t = a > 0
                                           ->      if t:
                                                       b = g(a)
                                                       t = b
                                                   if t:
                                                       return b
    """
    numbers = itertools.count() if numbers is None else numbers
    found: list[ast.stmt] = []
    for statement in block:
        change_blocks(statement, functools.partial(without_walrus, numbers=numbers))
        if isinstance(statement, ast.While) and _binds(statement.test):
            _test_inside(statement, numbers)
        part = "test" if isinstance(statement, (ast.If, ast.Assert)) else "value"
        value = getattr(statement, part, None)
        if isinstance(value, ast.expr) and _binds(value) and not isinstance(statement, ast.AugAssign):
            before, value = _hoisted(value, numbers)
            setattr(statement, part, value)
            found += [at(one, statement) for one in before]
        found.append(at(statement, statement))
    return found


def _test_inside(loop: ast.While, numbers: Iterator[int]) -> None:
    """Let each iteration compute the condition of a loop, and leave the loop if it does not hold."""
    if set(own_exits(loop.orelse)) - {ast.Return}:
        return
    before, test = _hoisted(loop.test, numbers)
    stop = ast.If(ast.UnaryOp(ast.Not(), test), [*loop.orelse, ast.Break()], [])
    loop.body = [*(at(one, loop) for one in (*before, stop)), *loop.body]
    loop.orelse = []
    loop.test = at(ast.Constant(True), loop)


def _binds(expression: ast.AST) -> bool:
    """Whether an expression contains ``:=``, apart from that in lambdas and comprehensions."""
    if isinstance(expression, ast.NamedExpr):
        return True
    return not isinstance(expression, _SCOPES) and any(map(_binds, ast.iter_child_nodes(expression)))


def _hoisted(expression: ast.expr, numbers: Iterator[int]) -> tuple[list[ast.stmt], ast.expr]:
    """The statements to run before an expression, and the expression without ``:=``."""
    if not _binds(expression):
        return [], expression
    if isinstance(expression, ast.NamedExpr):
        before, value = _hoisted(expression.value, numbers)
        return [*before, ast.Assign([expression.target], value)], ast.Name(expression.target.id, ast.Load())
    if isinstance(expression, ast.BoolOp):
        first, *others = expression.values
        before, value = _hoisted(first, numbers)
        if not any(map(_binds, others)):
            expression.values[0] = value
            return before, expression
        rest = others[0] if len(others) == 1 else ast.BoolOp(expression.op, others)
        result = f"{PREFIX}operand_{next(numbers)}"
        test: ast.expr = ast.Name(result, ast.Load())
        test = test if isinstance(expression.op, ast.And) else ast.UnaryOp(ast.Not(), test)
        inner = ast.If(test, _assigned_to(result, rest, numbers), [])
        return [*before, ast.Assign([ast.Name(result, ast.Store())], value), inner], ast.Name(result, ast.Load())
    if isinstance(expression, ast.IfExp) and (_binds(expression.body) or _binds(expression.orelse)):
        before, test = _hoisted(expression.test, numbers)
        result = f"{PREFIX}operand_{next(numbers)}"
        blocks = (_assigned_to(result, one, numbers) for one in (expression.body, expression.orelse))
        return [*before, ast.If(test, *blocks)], ast.Name(result, ast.Load())
    return _hoisted_parts(expression, numbers)


def _hoisted_parts(expression: ast.expr, numbers: Iterator[int]) -> tuple[list[ast.stmt], ast.expr]:
    """As :func:`_hoisted`, for an expression that evaluates all its parts in their order: ``f(a, b)``, ``a + b``."""
    parts = list(_parts(expression))
    last = max(number for number, (_, _, part) in enumerate(parts) if _binds(part))
    bound = {one.target.id for one in ast.walk(expression) if isinstance(one, ast.NamedExpr)}
    statements: list[ast.stmt] = []
    for number, (owner, place, part) in enumerate(parts[: last + 1]):
        before, value = _hoisted(part, numbers)
        statements += before
        if number < last and not _keeps_its_value(value, bound):
            result = f"{PREFIX}operand_{next(numbers)}"
            statements.append(ast.Assign([ast.Name(result, ast.Store())], value))
            value = ast.Name(result, ast.Load())
        if isinstance(owner, list):
            owner[place] = value
        else:
            setattr(owner, place, value)
    return statements, expression


def _parts(expression: ast.expr) -> Iterator[tuple[Any, Any, ast.expr]]:
    """The parts of an expression in their order, each after the node or list that has it, and its place there."""
    for name, value in ast.iter_fields(expression):
        owner, items = (value, enumerate(value)) if isinstance(value, list) else (expression, [(name, value)])
        for place, one in items:
            if isinstance(one, ast.keyword):
                yield one, "value", one.value
            elif isinstance(one, ast.expr):
                yield owner, place, one


def _keeps_its_value(expression: ast.expr, bound: Collection[str]) -> bool:
    """Whether a part of an expression may be evaluated after a later part that binds variables."""
    if isinstance(expression, (ast.Slice, ast.Starred)):
        return True  # They can't be assigned to a variable.
    names = {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}
    calls = any(isinstance(one, ast.Call) for one in ast.walk(expression))
    return not calls and names.isdisjoint(bound)


def _assigned_to(name: str, expression: ast.expr, numbers: Iterator[int]) -> list[ast.stmt]:
    before, value = _hoisted(expression, numbers)
    return [*before, ast.Assign([ast.Name(name, ast.Store())], value)]
