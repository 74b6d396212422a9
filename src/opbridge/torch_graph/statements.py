"""What a line of Python source tests or calls, from its syntax tree."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from typing import Any

from opbridge.torch_graph.match_statements import without_match
from opbridge.torch_graph.sources import SourceLine

__all__ = [
    "Condition",
    "called_name",
    "condition_at",
    "enclosing_function",
    "errors_caught_at",
    "numbers_compared",
    "parsed_file",
    "tested_at",
]


@dataclasses.dataclass(frozen=True)
class Condition:
    """The condition of a statement.

    Attributes:
        keyword: ``"if"``, ``"while"``, ``"assert"`` or ``"for"``.
        text: The source of the condition, or of the iterable of a ``for``.
        holds: The source of a bool expression that is true if the condition holds (``n != 0`` for ``if n``).
        opposite: The source of a bool expression that is true if the condition does not hold.
    """

    keyword: str
    text: str
    holds: str
    opposite: str

    def __str__(self) -> str:
        return f"for ... in {self.text}" if self.keyword == "for" else f"{self.keyword} {self.text}"


def parsed_file(file: str) -> ast.Module | None:
    """A new syntax tree of a Python file, with ``if`` for ``match``; None if its source is not available."""
    try:
        return without_match(ast.parse("".join(linecache.getlines(file))))
    except (SyntaxError, ValueError):
        return None


_parsed = functools.lru_cache(maxsize=16)(parsed_file)


def enclosing_function(source: SourceLine) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function that a line is in; None if it is in none, or its source is not available."""
    tree = _parsed(source.file)
    found: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not _spans(node, source.line):
            continue
        if found is None or node.lineno >= found.lineno:
            found = node
    return found


def _spans(node: ast.AST | None, line: int) -> bool:
    return node is not None and node.lineno <= line <= (node.end_lineno or node.lineno)  # type: ignore[attr-defined]


_STATEMENTS = {ast.If: "if", ast.While: "while", ast.Assert: "assert", ast.IfExp: "if"}


def _conditions(node: ast.AST, line: int) -> Iterator[tuple[str, ast.expr]]:
    keyword = _STATEMENTS.get(type(node))
    if keyword:
        if _spans(node.test, line):  # type: ignore[attr-defined]
            yield keyword, node.test  # type: ignore[attr-defined]
    elif isinstance(node, ast.For | ast.comprehension) and _spans(node.iter, line):
        yield "for", node.iter


def condition_at(source: SourceLine | None) -> Condition | None:
    """The condition of the ``if``, ``while``, ``assert`` or ``for`` on this line, or None if there is none."""
    keyword, expression = _condition_at(source)
    if expression is None:
        return None
    if isinstance(expression, ast.BoolOp):
        expression = next((part for part in expression.values if _reads_size(part)), expression)
    return Condition(keyword, ast.unparse(expression), *_as_bools(expression))


def tested_at(source: SourceLine | None) -> tuple[str, bool] | None:
    """What the ``if``, ``while`` or ``assert`` on this line tests, as source without ``not``; None if there is none.

    The bool is whether it is one value, not several that ``and`` or ``or`` combines.
    """
    keyword, expression = _condition_at(source)
    while isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
        expression = expression.operand
    if expression is None or keyword == "for":
        return None
    return ast.unparse(expression), not isinstance(expression, ast.BoolOp)


def _condition_at(source: SourceLine | None) -> tuple[str, ast.expr | None]:
    """The keyword of the statement on this line, and its condition."""
    tree = _parsed(source.file) if source else None
    if tree is not None and source is not None:
        for node in ast.walk(tree):  # Breadth first: a statement comes before the expressions inside it.
            for found in _conditions(node, source.line):
                return found
    return "", None


def errors_caught_at(source: SourceLine) -> list[str]:
    """The names of the errors that ``try`` statements around a line catch, apart from ``Exception`` and a bare one."""
    tree = _parsed(source.file)
    found: list[str] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Try) and any(_spans(statement, source.line) for statement in node.body):
            types = [handler.type for handler in node.handlers if handler.type is not None]
            found += [part.id for one in types for part in ast.walk(one) if isinstance(part, ast.Name)]
    return found


def numbers_compared(source: SourceLine, value_of: Callable[[str], Any]) -> tuple[int, ...]:
    """The ints in the comparisons on this line: written there, or values of names and attributes such as ``self.size``.

    Args:
        source: The line.
        value_of: The value of a variable there; None if it has none.
    """
    tree = _parsed(source.file)
    compared = (
        [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and _spans(node, source.line)] if tree else []
    )
    values = (_value(part, value_of) for node in compared for part in ast.walk(node))
    found = (one for value in values for one in (value if type(value) in (tuple, list) else [value]))
    return tuple(dict.fromkeys(one for one in found if type(one) is int))


def _value(expression: ast.AST, value_of: Callable[[str], Any]) -> Any:
    """The value of a constant, a variable or an attribute, without running code; None for another expression."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        return value_of(expression.id)
    if isinstance(expression, ast.Attribute):
        return inspect.getattr_static(_value(expression.value, value_of), expression.attr, None)
    return None


def _reads_size(expression: ast.expr) -> bool:
    return re.search(r"\b(numel|shape|size|len)\b", ast.unparse(expression)) is not None


_OPPOSITE = {
    ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


def _as_bools(expression: ast.expr) -> tuple[str, str]:
    text = ast.unparse(expression)
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
        holds, opposite = _as_bools(expression.operand)
        return opposite, holds
    if isinstance(expression, ast.Compare) and len(expression.ops) == 1 and type(expression.ops[0]) in _OPPOSITE:
        operator = _OPPOSITE[type(expression.ops[0])]()
        return text, ast.unparse(ast.Compare(expression.left, [operator], expression.comparators))
    if isinstance(expression, ast.Compare | ast.BoolOp):
        return text, f"torch.sym_not({text})"
    return f"{text} != 0", f"{text} == 0"


_TENSOR_METHODS = {"numpy", "cpu", "detach", "data_ptr", "contiguous", "float", "item", "tolist", "__array__", "size"}


def called_name(source: SourceLine | None) -> str | None:
    """The function outside torch that this line calls, as written: ``"np.sort"``; None if it is ambiguous."""
    tree = _parsed(source.file) if source else None
    if tree is None or source is None:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _spans(node, source.line)]
    names = [ast.unparse(call.func) for call in calls]
    foreign = [name for name in names if not name.startswith("torch.") and name.split(".")[-1] not in _TENSOR_METHODS]
    simple = [name for name in foreign if re.fullmatch(r"[\w.]+", name)]
    return simple[0] if simple else None
