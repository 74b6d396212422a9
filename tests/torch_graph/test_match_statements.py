"""``match`` as ``if``: the same results, on the lines of the cases."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from opbridge.torch_graph.match_statements import without_match


def numbers(value, other):
    match value + other:
        case 0 | 1:
            return "low"
        case 2:
            return "two"
        case n if n > 10:
            return n
        case -1 | None:
            return "minus"
    return "other"


def names(value, other):
    match value, other * 2:
        case (None, _):
            found = "none"
        case (0, 2) | (2, 0):
            found = "pair"
        case (1 as first, second):
            found = first, second
        case (a, b) if a > b:
            found = a - b
        case rest:
            found = rest
    return found


def kept(value, other):
    found = []
    match value:
        case n if n == other:  # The guard stays as it is, because the next pattern has no equivalent.
            found.append(n)
        case {"a": inner}:
            found.append(inner)
        case [first, *_]:
            match first:
                case 3:
                    found.append("three")
                case _:
                    found.append(first)
    return found


VALUES = (0, 1, 2, 5, 20, -1, -2)


@pytest.mark.parametrize("function", [numbers, names, kept], ids=lambda one: one.__name__)
def test_results(function: Any) -> None:
    source = inspect.getsource(function)
    namespace: dict[str, Any] = {}
    tree = without_match(ast.parse(source))
    exec(compile(tree, "converted", "exec"), namespace)
    others = [{"a": 7}, [3, 1], [4], ()] if function is kept else []
    for value in (*VALUES, *others):
        for other in (0, 1):
            assert namespace[function.__name__](value, other) == function(value, other)
    cases = [number for number, line in enumerate(source.splitlines(), 1) if line.lstrip().startswith("case ")]
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.If, ast.pattern))]
    assert {node.lineno for node in found} <= set(cases)
    assert any(isinstance(node, ast.Match) for node in ast.walk(tree)) == (function is kept)
