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
        if isinstance(node.value, ast.Call) and prints(node.value) and not binds(node.value):
            function = ast.Attribute(name_of(self._flow), "print", ast.Load())
            call = ast.Call(function, [ast.Lambda(arguments_of(), node.value)], [])
            node.value = ast.fix_missing_locations(ast.copy_location(call, node.value))
        return node
