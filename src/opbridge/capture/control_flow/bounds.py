"""Finds how often a ``while`` loop runs at most, from its conditions: ``len(x) < most``, ``if i == most: break``."""

from __future__ import annotations

import ast
import collections
import copy
from collections.abc import Iterator, Mapping

from opbridge.capture.control_flow.exits import leaves, own_exits
from opbridge.capture.control_flow.names import assigned, inside, loaded, touched

__all__ = ["note_bounds"]

_GOES_ON: dict[type[ast.cmpop], int] = {ast.Lt: 1, ast.LtE: 2}
"""The loop goes on while a count is smaller; how often it runs for a difference of 0, at most."""
_ENDS: dict[type[ast.cmpop], int] = {ast.Eq: 1, ast.GtE: 1, ast.Gt: 2}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
}
_PURE = ("len", "int", "min", "max", "size")


def note_bounds(function: ast.FunctionDef) -> None:
    """Give each ``while`` of a function the attribute ``bounds``, a list of expressions."""
    for node in ast.walk(function):
        if isinstance(node, ast.While):
            node.bounds = _bounds(node)  # type: ignore[attr-defined]


def _bounds(loop: ast.While) -> list[ast.expr]:
    """Expressions, to be evaluated before a loop, of which each is a largest number of iterations.

    There is one for each comparison with the length of a list to which each iteration appends an element, or with a
    number that each iteration increases, if the loop ends where the comparison says.
    """
    if ast.Continue in set(own_exits(loop.body)):
        return []
    counts = _counts(loop)
    stored, changed = set(assigned([loop])), {*assigned([loop]), *touched([loop])}
    found: list[ast.expr] = []
    for test, iterations in [*_tests(_parts(loop.test, ast.And), _GOES_ON), *_tests(_exits(loop.body), _ENDS)]:
        name = _counted(test.left)
        limit = test.comparators[0]
        steps = counts[name] if name is not None else 0
        if name is None or not steps or (steps > 1 and isinstance(test.ops[0], ast.Eq)):
            continue
        is_constant = not changed.intersection(_paths(limit)) and not stored.intersection(loaded([limit]))
        if is_constant and _is_pure(limit):
            difference = ast.BinOp(copy.deepcopy(limit), ast.Sub(), copy.deepcopy(test.left))
            found.append(ast.BinOp(difference, ast.Add(), ast.Constant(iterations)))
    return found


def _counts(loop: ast.While) -> collections.Counter[str]:
    """By how much each iteration increases a number, or how many elements it appends to a list at least."""
    stores = collections.Counter(
        node.id for node in inside([loop]) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )
    methods = collections.defaultdict(set)
    for node in inside([loop]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            methods[node.value.id].add(node.attr)
    found = collections.Counter[str]()
    for statement in loop.body:
        name, step = _increased(statement)
        if name and stores[name] == 1:
            found[name] = step
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            base = call.func.value
            if isinstance(base, ast.Name) and not stores[base.id] and methods[base.id] == {"append"}:
                found[f"len({base.id})"] += 1
    for name in [name for name in found if name.startswith("len(")]:
        calls = [node for node in inside([loop]) if isinstance(node, ast.Attribute) and node.attr == "append"]
        # Another append is in a branch: the length may pass a limit without being equal to it.
        found[name] += sum(ast.unparse(call.value) == name[4:-1] for call in calls) > found[name]
    return found


def _increased(statement: ast.stmt) -> tuple[str, int]:
    """The variable and the number of ``i += 1`` or ``i = i + 1``."""
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
        operator, added, before = statement.op, statement.value, target
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        target = statement.targets[0]
        operator, added, before = statement.value.op, statement.value.right, statement.value.left
    else:
        return "", 0
    number = added.value if isinstance(added, ast.Constant) else None
    is_same = isinstance(target, ast.Name) and isinstance(before, ast.Name) and before.id == target.id
    if is_same and isinstance(operator, ast.Add) and type(number) is int and number > 0:
        return ast.unparse(target), number
    return "", 0


def _counted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    text = ast.unparse(node)
    return text if text.startswith("len(") and isinstance(node, ast.Call) else None


def _parts(test: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, operator) else [test]


def _exits(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """The conditions of which each alone ends the loop, in each iteration."""
    for statement in body:
        while isinstance(statement, ast.If) and leaves(statement.body):
            yield from _parts(statement.test, ast.Or)
            if len(statement.orelse) != 1:
                break
            (statement,) = statement.orelse


def _tests(
    tests: Iterator[ast.expr] | list[ast.expr], kinds: Mapping[type[ast.cmpop], int]
) -> Iterator[tuple[ast.Compare, int]]:
    """The comparisons of these kinds, with what is counted on the left."""
    for test in tests:
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _MIRRORED:
            continue
        mirrored = ast.Compare(test.comparators[0], [_MIRRORED[type(test.ops[0])]()], [test.left])
        for one in (test, mirrored):
            if type(one.ops[0]) in kinds:
                yield one, kinds[type(one.ops[0])]


def _paths(node: ast.AST) -> Iterator[str]:
    """The variables and attributes that an expression reads, without the objects of the attributes."""
    for child in ast.iter_child_nodes(node) if not isinstance(node, (ast.Name, ast.Attribute)) else ():
        yield from _paths(child)
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield ast.unparse(node)


def _is_pure(node: ast.expr) -> bool:
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return all((getattr(call, "id", None) or getattr(call, "attr", None)) in _PURE for call in calls)
