"""The layout of a kernel that is written in Python: ``"x[..., n], w[n] -> y[..., n]"``.

A layout states each tensor's element type, rank and sizes, so it replaces the shape function. The sizes of outputs are
expressions of the inputs' sizes and of integer attributes.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Collection, Sequence

__all__ = ["Layout", "LayoutError", "TensorLayout", "cpp_size", "parse_layout"]

ELLIPSIS = "..."
_ITEM = re.compile(r"(?:(?P<type>[A-Za-z_]\w*)\s+)?(?P<name>[A-Za-z_]\w*)\s*(?:\[(?P<sizes>.*)\])?", re.DOTALL)


class LayoutError(ValueError):
    """A layout is not valid; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class TensorLayout:
    """One tensor of a layout.

    Attributes:
        name: The parameter's name.
        type: A type variable ("T") or a dtype ("int64").
        sizes: An expression per axis; the first may be "...", any number of leading axes merged into one. None
            for a tensor of any rank that is processed element by element.
    """

    name: str
    type: str
    sizes: tuple[str, ...] | None

    @property
    def collapses(self) -> bool:
        """Whether leading axes are merged into one."""
        return bool(self.sizes) and self.sizes[0] == ELLIPSIS  # type: ignore[index]

    @property
    def named(self) -> tuple[str, ...]:
        """The sizes after the leading axes."""
        return (self.sizes or ())[1 if self.collapses else 0 :]

    def __str__(self) -> str:
        return self.name if self.sizes is None else f"{self.name}[{', '.join(self.sizes)}]"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The tensors of a kernel.

    Attributes:
        inputs: The inputs, in the operator's order.
        outputs: The outputs, in the operator's order.
    """

    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]

    @property
    def elementwise(self) -> bool:
        """Whether the kernel computes one element from one element of each input, which are broadcast."""
        return self.outputs[0].sizes is None

    @property
    def tensors(self) -> tuple[TensorLayout, ...]:
        """The inputs, then the outputs."""
        return (*self.inputs, *self.outputs)


def parse_layout(text: str, attributes: Collection[str] = ()) -> Layout:
    """Read a layout.

    Args:
        text: The layout, such as ``"T x[n, c], int64 index[k] -> T y[k, c]"``; a tensor without a type has type ``T``.
        attributes: The operator's integer attributes, which sizes may use.

    Raises:
        LayoutError: The layout can't be parsed, or does not determine an output's size.
    """
    before, arrow, after = text.partition("->")
    if not arrow:
        raise LayoutError("it has no '->' between inputs and outputs")
    layout = Layout(tuple(map(_tensor, _split(before))), tuple(map(_tensor, _split(after))))
    if not layout.outputs:
        raise LayoutError("there is no output after '->'")
    if len({tensor.sizes is None for tensor in layout.tensors}) > 1:
        raise LayoutError("some tensors have sizes and some have none: give them to all, or to none")
    if layout.elementwise and len(layout.outputs) > 1:
        raise LayoutError("a kernel of several outputs works on arrays, so its tensors need sizes")
    _check_sizes(layout, attributes)
    return layout


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _tensor(item: str) -> TensorLayout:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise LayoutError(f"{item!r} is not a tensor: write 'x[n, m]', or with its type 'T x[n, m]'")
    sizes = match["sizes"]
    if sizes is not None and not sizes.strip():
        raise LayoutError(f"{item!r} has no sizes; a tensor of any rank is 'x[...]'")
    split = None if sizes is None else tuple(_split(sizes))
    return TensorLayout(match["name"], match["type"] or "T", split)


def _check_sizes(layout: Layout, attributes: Collection[str]) -> None:
    known = set(attributes)
    for tensor in layout.inputs:
        for size in tensor.named:
            if not (size.isidentifier() or size.isdecimal()):
                raise LayoutError(f"{size!r} of the input {tensor} is neither a name nor a number")
        known.update(size for size in tensor.named if size.isidentifier())
    for tensor in layout.outputs:
        if tensor.collapses and not any(given.collapses for given in layout.inputs):
            raise LayoutError(f"no input defines the leading axes '...' of {tensor}")
        for size in tensor.named:
            cpp_size(size, known)


def cpp_size(size: str, names: Collection[str]) -> str:
    """A size's expression in C++, with ``size_`` before each name.

    Raises:
        LayoutError: It has parts other than these names, integers, + - * // %, comparisons, conditions, min and max.
    """
    try:
        return _cpp(ast.parse(size, mode="eval").body, names)
    except (SyntaxError, KeyError, TypeError) as error:
        raise LayoutError(
            f"the size {size!r} may only have names, integers, + - * // %, comparisons, 'a if c else b', min and max"
        ) from error


_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.And: "&&",
    ast.Or: "||",
    ast.Not: "!",
    ast.USub: "-",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_FUNCTIONS = {ast.FloorDiv: "opbridge::floor_divided", ast.Mod: "opbridge::floor_remainder"}


def _cpp(node: ast.expr, names: Collection[str]) -> str:
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise LayoutError(f"no input and no integer attribute defines the size {node.id!r}")
        return f"size_{node.id}"
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return f"int64_t{{{node.value}}}"
    if isinstance(node, ast.BinOp):
        left, right = _cpp(node.left, names), _cpp(node.right, names)
        if isinstance(node.op, ast.FloorDiv | ast.Mod):
            return f"{_FUNCTIONS[type(node.op)]}({left}, {right})"
        return f"({left} {_SYMBOLS[type(node.op)]} {right})"
    if isinstance(node, ast.UnaryOp):
        return f"({_SYMBOLS[type(node.op)]}{_cpp(node.operand, names)})"
    if isinstance(node, ast.BoolOp):
        return f"({f' {_SYMBOLS[type(node.op)]} '.join(_cpp(value, names) for value in node.values)})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return f"({_cpp(node.left, names)} {_SYMBOLS[type(node.ops[0])]} {_cpp(node.comparators[0], names)})"
    if isinstance(node, ast.IfExp):
        return f"({_cpp(node.test, names)} ? {_cpp(node.body, names)} : {_cpp(node.orelse, names)})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return _folded(f"std::{node.func.id}<int64_t>", [_cpp(value, names) for value in node.args])
    raise TypeError(node)


def _folded(function: str, values: Sequence[str]) -> str:
    first, *rest = values
    return f"{function}({first}, {_folded(function, rest)})" if rest else first
