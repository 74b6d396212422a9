"""Writes elements that are added to a list as calls of ``append``, which loops and branches can take."""

from __future__ import annotations

import ast
import copy

__all__ = ["ListsByAppend"]


class ListsByAppend(ast.NodeTransformer):
    """Writes ``x += [a, b]`` and ``x.extend([a, b])`` as calls of ``x.append``."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        """``x += [a, b]``; a list is the only sequence that takes a list there."""
        elements = _elements(node.value)
        if isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name) and elements is not None:
            return _appends(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target), elements, node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        """``x.extend([a, b])``."""
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "extend":
            elements = _elements(call.args[0]) if len(call.args) == 1 and not call.keywords else None
            if elements is not None:
                return _appends(call.func.value, elements, node)
        return node


def _elements(node: ast.expr) -> ast.List | None:
    is_list = isinstance(node, ast.List) and not any(isinstance(one, ast.Starred) for one in node.elts)
    return node if is_list else None  # type: ignore[return-value]


def _appends(target: ast.expr, values: ast.List, like: ast.stmt) -> list[ast.stmt]:
    functions = (ast.Attribute(copy.deepcopy(target), "append", ast.Load()) for _ in values.elts)
    calls = (ast.Call(function, [value], []) for function, value in zip(functions, values.elts, strict=True))
    return [ast.fix_missing_locations(ast.copy_location(ast.Expr(call), like)) for call in calls]
