"""``match`` statements as ``if`` statements, so that what is known about conditions holds for their cases too.

A statement that has a pattern of a mapping, of a class or with a star stays as it is.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable

__all__ = ["without_match"]

_REPEATABLE = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Tuple),
    *(ast.expr_context, ast.operator, ast.unaryop),
)


def without_match(tree: ast.Module) -> ast.Module:
    """A syntax tree in which each ``case`` is an ``if`` on its line, the next case its ``else``. Changes ``tree``."""
    return _WithoutMatch().visit(tree)  # type: ignore[no-any-return]


class _Unsupported(Exception):
    """A pattern has no equivalent condition."""


class _WithoutMatch(ast.NodeTransformer):
    def visit_Match(self, node: ast.Match) -> list[ast.stmt] | ast.AST:
        self.generic_visit(node)
        values = node.subject.elts if isinstance(node.subject, ast.Tuple) else [node.subject]
        names = [None if _is_repeatable(one) else f"_matched_{one.lineno}_{one.col_offset}" for one in values]
        statements = [
            _at(one, ast.Assign([ast.Name(name, ast.Store())], one))
            for one, name in zip(values, names, strict=True)
            if name is not None
        ]
        parts = [one if name is None else ast.Name(name, ast.Load()) for one, name in zip(values, names, strict=True)]
        subject = ast.Tuple(parts, ast.Load()) if isinstance(node.subject, ast.Tuple) else parts[0]
        try:
            return [*statements, *_if(subject, node.cases)]
        except _Unsupported:
            return node


def _if(subject: ast.expr, cases: list[ast.match_case]) -> list[ast.stmt]:
    """The statements for the cases."""
    if not cases:
        return []
    case, *others = cases
    tests, bound = _tests(case.pattern, subject)
    names = [_at(case.pattern, ast.Assign([ast.Name(name, ast.Store())], value)) for name, value in bound.items()]
    body: list[ast.stmt] = [*names, *case.body]
    tests += [_Named(bound).visit(copy.deepcopy(case.guard))] if case.guard is not None else []
    if not tests:
        return body
    statement = _at(case.pattern, ast.If(_all_of(tests), body, _if(subject, others)))
    statement.end_lineno = max(one.end_lineno or one.lineno for one in (*body, *statement.orelse))  # type: ignore[attr-defined]
    return [statement]


def _tests(pattern: ast.pattern, subject: ast.expr) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """The conditions under which a subject matches, and the variables that it is then assigned to."""
    subject = copy.deepcopy(subject)
    if isinstance(pattern, ast.MatchValue):
        return [ast.Compare(subject, [ast.Eq()], [pattern.value])], {}
    if isinstance(pattern, ast.MatchSingleton):
        return [ast.Compare(subject, [ast.Is()], [ast.Constant(pattern.value)])], {}
    if isinstance(pattern, ast.MatchAs):
        tests, bound = _tests(pattern.pattern, subject) if pattern.pattern is not None else ([], {})
        return tests, bound if pattern.name is None else {**bound, pattern.name: subject}
    if isinstance(pattern, ast.MatchOr):
        return [ast.BoolOp(ast.Or(), list(_alternatives(pattern.patterns, subject)))], {}
    if isinstance(pattern, ast.MatchSequence) and isinstance(subject, ast.Tuple):
        if len(pattern.patterns) != len(subject.elts):
            return [ast.Constant(False)], {}
        parts = [_tests(*one) for one in zip(pattern.patterns, subject.elts, strict=True)]
        return [test for tests, _ in parts for test in tests], {n: v for _, bound in parts for n, v in bound.items()}
    raise _Unsupported


def _alternatives(patterns: Iterable[ast.pattern], subject: ast.expr) -> Iterable[ast.expr]:
    for pattern in patterns:
        tests, bound = _tests(pattern, subject)
        if bound or not tests:
            raise _Unsupported
        yield _all_of(tests)


def _all_of(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


class _Named(ast.NodeTransformer):
    """Replaces the variables that a pattern assigns by their values."""

    def __init__(self, bound: dict[str, ast.expr]) -> None:
        self._bound = bound

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._bound[node.id]) if node.id in self._bound else node


def _is_repeatable(subject: ast.expr) -> bool:
    """Whether an expression has the same value each time that it is computed."""
    return all(isinstance(one, _REPEATABLE) for one in ast.walk(subject))


def _at(like: ast.AST, node: ast.stmt) -> ast.stmt:
    """A statement with the location of another node wherever it has none."""
    for one in ast.walk(node):
        if isinstance(one, (ast.stmt, ast.expr)) and not hasattr(one, "lineno"):
            ast.copy_location(one, like)
    return node
