"""Which variables a branch or a loop must pass on: those that are read before they are assigned again."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence

from opbridge.capture.control_flow.names import augmented, is_temporary, loaded, parts_of

__all__ = ["read_after_branches", "set_in_each_iteration"]

_LOCALS = {"locals", "vars", "eval", "exec"}


def read_after_branches(body: Sequence[ast.stmt], always: Iterable[str]) -> dict[int, frozenset[str] | None]:
    """The variables that a function may read after each of its ``if`` statements.

    Args:
        body: The statements of the function.
        always: Variables that may be read at any time, such as those of an enclosing function.

    Returns:
        The names by the ``id`` of the statement; None if the function can read its variables by their names.
    """
    branches = [node for one in body for node in ast.walk(one) if isinstance(node, ast.If)]
    if _LOCALS & loaded(body).keys():
        return {id(branch): None for branch in branches}
    functions = [node for one in body for node in ast.walk(one) if isinstance(node, _FUNCTIONS)]
    found: dict[int, frozenset[str]] = {}
    _visit(body, frozenset(always) | _reads(functions), found)
    return {id(branch): found.get(id(branch)) for branch in branches}


def set_in_each_iteration(statement: ast.stmt, inner: Iterable[str]) -> list[str]:
    """The variables that each iteration of a loop assigns before it reads them; none of any other statement.

    Args:
        statement: The statement.
        inner: The variables that only the statement reads.
    """
    if not isinstance(statement, (ast.For, ast.While)):
        return []
    head, (body, orelse) = parts_of(statement)
    goes_on = getattr(statement, "goes_on", None)
    elsewhere = loaded([*head, *orelse, *([goes_on] if goes_on is not None else [])])
    return [name for name in inner if name not in elsewhere and is_temporary(name, [body])]


def _visit(block: Sequence[ast.stmt], after: frozenset[str], found: dict[int, frozenset[str]]) -> None:
    for statement in reversed(block):
        inner = after
        if isinstance(statement, (ast.For, ast.While)):
            read = _reads([statement])
            inner |= read - set(set_in_each_iteration(statement, read))
        elif isinstance(statement, ast.If):
            found[id(statement)] = after
        elif isinstance(statement, ast.Try):
            # Whatever the statement reads, its body may have been left before.
            inner |= _reads([*statement.handlers, *statement.orelse, *statement.finalbody])
        for part in _blocks(statement):
            _visit(part, inner, found)
        after |= _reads([statement])


def _blocks(statement: ast.stmt) -> Iterable[list[ast.stmt]]:
    """The blocks of statements of a statement that belong to the same function."""
    if isinstance(statement, _FUNCTIONS):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _reads(nodes: Collection[ast.AST]) -> frozenset[str]:
    return frozenset(loaded(nodes)) | augmented(nodes)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
