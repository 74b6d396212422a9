"""Computes with sizes that are written as expressions: ``"batch"``, ``"4*batch"``, ``"(s42//4)"``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Size", "Sizes", "same_sizes", "size_of", "sizes_of", "substituted", "symbols_in"]

Size = int | str | None
"""A number, an expression over the names of dimensions, or None if the size is unknown."""

Sizes = tuple[Size, ...]

_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": max,
    "max": max,
    "Min": min,
    "min": min,
    "abs": abs,
    "Mod": operator.mod,
}


def sizes_of(value: Any) -> Sizes | None:
    """The sizes of an ``onnx_ir`` value; None if the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


def symbols_in(size: Size) -> set[str]:
    """The names in an expression."""
    if not isinstance(size, str):
        return set()
    tree = _parsed(size)
    return {size} if tree is None else {item.id for item in ast.walk(tree) if isinstance(item, ast.Name)}


def size_of(size: Size, numbers: Mapping[str, int]) -> int | None:
    """Evaluate a size for the given sizes of named dimensions; None if a name is missing."""
    if not isinstance(size, str):
        return size
    if size in numbers:
        return numbers[size]
    tree = _parsed(size)
    try:
        return None if tree is None else int(_evaluated(tree.body, numbers))
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def same_sizes(one: Sequence[Size] | None, other: Sequence[Size] | None, numbers: Sequence[Mapping[str, int]]) -> bool:
    """Whether two shapes with the same number of elements are equal, as far as that is known.

    If one side has a single unknown size, it follows from the number of elements.

    Args:
        one: The first shape.
        other: The second shape.
        numbers: Sizes of the named dimensions; the shapes must be equal for each mapping.
    """
    if one is None or other is None or len(one) != len(other):
        return False
    unknown = 0
    for mine, theirs in zip(one, other, strict=True):
        if mine == theirs and mine is not None:
            continue
        pairs = [(size_of(mine, choice), size_of(theirs, choice)) for choice in numbers]
        if any(a is None or b is None for a, b in pairs) or not pairs:
            unknown += 1
        elif any(a != b for a, b in pairs):
            return False
    return unknown <= 1


def substituted(size: Size, new: Mapping[str, int | str]) -> Size:
    """The size with some of its names replaced by other names or numbers."""
    if not isinstance(size, str):
        return size
    if size in new:
        return new[size]
    text = re.sub(r"[A-Za-z_]\w*", lambda found: f"({new[found[0]]})" if found[0] in new else found[0], size)
    number = size_of(text, {})
    return text if number is None else number


def _parsed(text: str) -> ast.Expression | None:
    try:
        return ast.parse(text.replace(".", "_"), mode="eval")
    except SyntaxError:
        return None


def _evaluated(node: ast.expr, numbers: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluated(node.operand, numbers)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_evaluated(node.left, numbers), _evaluated(node.right, numbers))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _FUNCTIONS[node.func.id](*(_evaluated(argument, numbers) for argument in node.args))
    raise KeyError(ast.dump(node))
