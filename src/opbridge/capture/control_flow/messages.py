"""Statements that only print, in converted code."""

from __future__ import annotations

import ast

from opbridge.capture.control_flow.expressions import binds, prints
from opbridge.capture.control_flow.nodes import arguments_of, name_of

__all__ = ["Messages"]


class Messages(ast.NodeTransformer):
    """Lets statements that only print, such as ``print("%.3f" % loss.item())``, fail without stopping the capture.

    Args:
        flow: The name of the module ``flow`` in the converted code.
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Pass the statement to ``flow.print``."""
        call = node.value
        if isinstance(call, ast.Call) and prints(call) and _is_known(call.func) and not binds(call):
            function = ast.Attribute(name_of(self._flow), "print", ast.Load())
            lazy = ast.Call(function, [ast.Lambda(arguments_of(), call)], [])
            node.value = ast.fix_missing_locations(ast.copy_location(lazy, call))
        return node


def _is_known(function: ast.expr) -> bool:
    """Whether a function is ``print``, or belongs to a logger or to ``warnings``: ``self.log(x)`` may do more."""
    owner = function.value if isinstance(function, ast.Attribute) else function
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return any(part in name.lower() for part in ("print", "log", "warn"))
