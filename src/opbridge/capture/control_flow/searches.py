"""Writes searches for an item in the form that branches can take: whether one was found is a variable of its own."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from opbridge.capture.control_flow.exits import PREFIX, at, change_blocks
from opbridge.capture.control_flow.names import assigned, augmented, inside, loaded

__all__ = ["with_searches"]

_BLOCKS = ("body", "orelse", "finalbody")


def with_searches(block: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements, with ``next`` as a loop, and with a variable for each one that is None before a loop.

    ::

        x = next((a for a in xs if t), d)  ->  x = d
                                               for a in xs:
                                                   if t:
                                                       x = a
                                                       break

        x = None                               found = False
        for a in xs:                           for a in xs:
            if t:                          ->      if t:
                x = a                                  x = a
                                                       found = True
                                               if not found:
                                                   x = None

    The second is done if the loop does not read ``x``, and assigns it under a condition.
    """
    statements = [one for statement in block for one in _expanded(statement)]
    found: list[ast.stmt] = []
    for statement in statements:
        change_blocks(statement, with_searches)
        groups = _searched(statement, found) if isinstance(statement, (ast.For, ast.While)) else []
        after: list[ast.stmt] = []
        for names in groups:
            flag = f"{PREFIX}found_{names[0]}"
            found.append(_assign(flag, ast.Constant(False), statement))
            statement = _Noting(names[0], flag).visit(statement)
            statement.is_search = True  # type: ignore[attr-defined]
            test = ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load()))
            nones = [_assign(name, ast.Constant(None), statement) for name in names]
            after.append(at(ast.If(test, nones, []), statement))
        found += [statement, *after]
    return found


def _expanded(statement: ast.stmt) -> list[ast.stmt]:
    """``x = next(...)`` and ``return next(...)`` as a loop; another statement as it is."""
    call = statement.value if isinstance(statement, (ast.Assign, ast.Return)) else None
    if not (isinstance(call, ast.Call) and getattr(call.func, "id", None) == "next" and not call.keywords):
        return [statement]
    items = call.args[0] if call.args else None
    if not isinstance(items, ast.GeneratorExp) or len(items.generators) > 1:
        return [statement]
    target: ast.expr = ast.Name(f"{PREFIX}next_{statement.lineno}", ast.Store())
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if len(targets) == 1 and isinstance(targets[0], ast.Name) and not loaded([ast.Expr(items)])[targets[0].id]:
        target = targets[0]
    name = target.id  # type: ignore[attr-defined]
    items = _Renaming(items).visit(copy.deepcopy(items))
    (generator,) = items.generators
    body: list[ast.stmt] = [_assign(name, items.elt, statement), at(ast.Break(), statement)]
    if generator.ifs:
        test = generator.ifs[0] if len(generator.ifs) == 1 else ast.BoolOp(ast.And(), generator.ifs)
        body = [at(ast.If(test, body, []), statement)]
    first = [_assign(name, call.args[1], statement)] if len(call.args) > 1 else []
    loop = at(ast.For(generator.target, generator.iter, body, []), statement)
    if target in getattr(statement, "targets", ()):
        return [*first, loop]
    statement.value = at(ast.Name(name, ast.Load()), statement)  # type: ignore[union-attr, attr-defined]
    return [*first, loop, statement]


class _Renaming(ast.NodeTransformer):
    """Gives the variables of a generator expression, which it keeps to itself, other names."""

    def __init__(self, items: ast.GeneratorExp) -> None:
        targets = [one for generator in items.generators for one in ast.walk(generator.target)]
        self._names = {one.id for one in targets if isinstance(one, ast.Name)}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(f"{PREFIX}{node.id}", node.ctx), node) if node.id in self._names else node


def _searched(loop: ast.For | ast.While, before: list[ast.stmt]) -> list[list[str]]:
    """The variables that are None before a loop and that it only assigns, under conditions; they are unassigned then.

    Those that are assigned in the same blocks are together.
    """
    read = {*loaded([loop]), *augmented([loop])}
    conditional = [name for one in inside(loop.body) if isinstance(one, ast.If) for name in assigned([one])]
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in dict.fromkeys(conditional):
        stores = [one for one in inside([loop]) if getattr(one, "id", None) == name]
        blocks = [block for one in inside([loop]) for block in _blocks(one)]
        places = [id(block) for block in blocks for one in block if _assigns(one, name)]
        last = next((one for one in reversed(before) if name in (*assigned([one]), *loaded([one]))), None)
        if name in read or len(stores) != len(places) or not isinstance(last, ast.Assign):
            continue
        if _unassign(name, last):
            groups.setdefault(tuple(places), []).append(name)
    return list(groups.values())


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    return [block for name in _BLOCKS if isinstance(block := getattr(node, name, None), list)]


def _assigns(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and name in assigned([statement])


def _unassign(name: str, statement: ast.Assign) -> bool:
    """Let ``x = None`` leave the variable unassigned; False if the statement is another one."""
    target = statement.targets[0] if len(statement.targets) == 1 else None
    undefined = ast.Attribute(ast.Name(f"{PREFIX}flow", ast.Load()), "UNDEFINED", ast.Load())
    if isinstance(target, ast.Name) and _is_none(statement.value):
        statement.value = at(undefined, statement)
        return True
    if not isinstance(target, ast.Tuple) or not isinstance(statement.value, ast.Tuple):
        return False
    places = [i for i, one in enumerate(target.elts) if isinstance(one, ast.Name) and one.id == name]
    if len(places) != 1 or len(target.elts) != len(statement.value.elts):
        return False
    if not _is_none(statement.value.elts[places[0]]):
        return False
    statement.value.elts[places[0]] = at(undefined, statement)
    return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class _Noting(ast.NodeTransformer):
    """Notes in a variable that another one is assigned."""

    def __init__(self, name: str, flag: str) -> None:
        self._name, self._flag = name, flag

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        if not _assigns(node, self._name):
            return node
        return [node, _assign(self._flag, ast.Constant(True), node)]


def _assign(name: str, value: ast.expr, like: ast.AST) -> ast.stmt:
    return at(ast.Assign([ast.Name(name, ast.Store())], value), like)
