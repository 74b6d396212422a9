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
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "extend":
            return node
        elements = _elements(call.args[0]) if len(call.args) == 1 and not call.keywords else None
        if elements is None or not isinstance(call.func.value, (ast.Name, ast.Attribute)):
            return node
        return _appends(call.func.value, elements, node)


def _elements(node: ast.expr) -> ast.List | None:
    """The list, if it names its elements and has some."""
    if not isinstance(node, ast.List) or not node.elts or any(isinstance(one, ast.Starred) for one in node.elts):
        return None
    return node


def _appends(target: ast.expr, values: ast.List, like: ast.stmt) -> list[ast.stmt]:
    functions = (ast.Attribute(copy.deepcopy(target), "append", ast.Load()) for _ in values.elts)
    calls = (ast.Call(function, [value], []) for function, value in zip(functions, values.elts, strict=True))
    return [ast.fix_missing_locations(ast.copy_location(ast.Expr(call), like)) for call in calls]
