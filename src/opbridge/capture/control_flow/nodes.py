"""Makes the nodes of converted source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from opbridge.capture.control_flow.exits import place

__all__ = ["arguments_of", "as_list", "assignments", "located", "name_of", "one_loop", "parsed", "strings"]


def parsed(source: str) -> list[ast.stmt]:
    """The statements of a source, without line numbers."""
    statements = ast.parse(source).body
    for statement in statements:
        for node in ast.walk(statement):
            for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
                if hasattr(node, name):
                    delattr(node, name)
    return statements


def located(nodes: Iterable[ast.stmt], like: ast.AST) -> list[ast.stmt]:
    """Statements, with the line number of another node where they have none."""
    nodes = list(nodes)
    for node in nodes:
        for one in ast.walk(node):
            if isinstance(one, (ast.stmt, ast.expr, ast.arg, ast.keyword)) and not hasattr(one, "lineno"):
                place(one, like)
    return nodes


def assignments(names: Sequence[str], values: str, flow: str) -> list[str]:
    """The lines that assign values to variables and attributes, or delete those whose value is ``UNDEFINED``.

    Args:
        names: The variables and attributes; no attribute is assigned if its own value is ``UNDEFINED``, because the
            variable that has it may be unassigned too.
        values: The name of the list of values.
        flow: The name of the module ``flow`` in the converted code.
    """
    if not names:
        return ["pass"]
    own = {name: f"{values}_{place}" for place, name in enumerate(names) if "." in name}
    lines = [f"[{', '.join(own.get(name, name) for name in names)}] = {values}"]
    for name, value in own.items():
        lines.append(f"if {value} is not {flow}.UNDEFINED: {name} = {value}")
        lines.append(f"elif {flow}.read(lambda: {name}) is not {flow}.UNDEFINED: del {name}")
    return lines + [f"if {name} is {flow}.UNDEFINED: del {name}" for name in names if name not in own]


def name_of(name: str) -> ast.Name:
    """A variable that is read."""
    return ast.Name(name, ast.Load())


def strings(values: Iterable[str]) -> ast.Tuple:
    """A tuple of strings."""
    return ast.Tuple([ast.Constant(value) for value in values], ast.Load())


def as_list(argument: ast.expr) -> ast.expr:
    """A generator expression as a list; another expression as it is."""
    if not isinstance(argument, ast.GeneratorExp):
        return argument
    return ast.copy_location(ast.ListComp(argument.elt, argument.generators), argument)


def one_loop(call: ast.Call, items: ast.GeneratorExp) -> ast.GeneratorExp:
    """``any(t for a in x for b in y)`` as ``any(any(t for b in y) for a in x)``: the argument."""
    first, *others = items.generators
    if not others:
        return items
    inner = ast.copy_location(ast.GeneratorExp(items.elt, others), items)
    element = ast.copy_location(ast.Call(call.func, [inner], []), items)
    return ast.copy_location(ast.GeneratorExp(element, [first]), items)


def arguments_of(*names: str) -> ast.arguments:
    """The arguments of a function or of a lambda."""
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
