"""Dynamic dimensions: the user's names and limits, and the corresponding symbols of torch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from opbridge.torch_graph.input_parts import map_declared

__all__ = [
    "arguments_by_name",
    "bounded_inputs",
    "chosen_by_torch",
    "declared_sizes",
    "dimension_names",
    "dynamic_axes",
    "from_two",
    "size_at",
    "without_names",
]

_NO_LIMIT = 2**31
"""Torch represents an absent limit by infinity or by its largest integer."""


def without_names(dynamic_shapes: Any) -> Any:
    """``dynamic_shapes`` with the names of dimensions replaced by objects that torch.export accepts."""
    return pytree.tree_map_only(str, lambda name: torch.export.Dim.DYNAMIC, dynamic_shapes)


def from_two(dynamic_shapes: Any, *, declared: int = 0) -> Any:
    """``dynamic_shapes`` in which each named dimension whose minimum is at most ``declared`` begins at 2.

    The minimum is 0 if the user has declared none.
    """
    return pytree.tree_map(lambda dimension: _from_two(dimension, declared), dynamic_shapes)


def _from_two(dimension: Any, declared: int) -> Any:
    root = getattr(dimension, "root", dimension)
    if not isinstance(root, torch.export.Dim) or int(root.min) > declared:
        return dimension
    high = root.max if isinstance(root.max, int) else None
    raised = torch.export.Dim(root.__name__, min=2, max=high)
    if root is dimension:
        return raised
    # Of a derived dimension only its values are known; torch allows A*n + B alone.
    offset = int(dimension.fn(0))
    factor = int(dimension.fn(1)) - offset
    derived = raised * factor if factor > 1 else raised
    return derived + offset if offset > 0 else derived - -offset if offset < 0 else derived


def chosen_by_torch(dynamic_shapes: Any, names: Collection[str]) -> Any:
    """``dynamic_shapes`` in which torch.export may choose a smaller range for these dimensions than the declared one.

    It does not choose the sizes of dimensions that begin at 1, because it would leave out the size 1.

    Args:
        dynamic_shapes: In the form of ``torch.export.export``.
        names: The names of the dimensions.
    """
    return pytree.tree_map(lambda dimension: _chosen_by_torch(dimension, names), dynamic_shapes)


def _chosen_by_torch(dimension: Any, names: Collection[str]) -> Any:
    is_named = isinstance(dimension, torch.export.Dim) and dimension.__name__ in names
    if not is_named or hasattr(dimension, "root") or int(dimension.min) == 1:
        return dimension
    high = dimension.max if isinstance(dimension.max, int) else None
    return torch.export.Dim.DYNAMIC(min=max(2, int(dimension.min)), max=high)


def size_at(size: Any, number: int) -> int:
    """The value of a size if each dynamic dimension in it is ``number``."""
    if isinstance(size, int):
        return size
    symbols = set(re.findall(r"\b[su]\d+\b", str(size)))
    expression = sympy.sympify(str(size), locals={name: sympy.Symbol(name, integer=True) for name in symbols})
    return int(expression.subs(dict.fromkeys(expression.free_symbols, number)))


def arguments_by_name(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The example inputs by the names of the parameters of ``forward``, in the order in which torch flattens them."""
    return {**inspect.signature(module.forward).bind_partial(*args).arguments, **kwargs}


def dimension_names(
    program: torch.export.ExportedProgram, dynamic_shapes: Any, arguments: Mapping[str, Any]
) -> dict[str, str]:
    """The user's name of each dynamic dimension, by torch's symbol; of ``4*n`` the symbol is that of ``n``.

    If two dimensions have one name but other sizes in the example, a number is appended to the second name. Where torch
    has a symbol for a derived dimension, and another for its root, the name is the expression: ``6*frames - 12``.
    """
    names: dict[str, str] = {}
    sizes: dict[str, Any] = {}
    derived: dict[str, tuple[Any, str]] = {}
    for _, size, declared in declared_sizes(program, dynamic_shapes, arguments):
        root = getattr(declared, "root", declared)
        name = root if isinstance(root, str) else getattr(root, "__name__", None)
        symbols = size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ()
        symbol = str(next(iter(symbols), ""))
        if name and declared is not root and symbol == str(size):
            derived.setdefault(symbol, (declared, name))
        elif name and len(symbols) == 1 and (declared is not root or symbol == str(size)) and symbol not in names:
            if name in sizes and sizes[name] != size.node.hint:
                name += f"_{sum(other == name or other.rpartition('_')[0] == name for other in sizes)}"
            names[symbol] = name
            sizes[name] = size.node.hint
    for symbol, (declared, name) in derived.items():
        names.setdefault(symbol, str(declared.fn(sympy.Symbol(name))) if name in names.values() else name)
    return names


def bounded_inputs(
    program: torch.export.ExportedProgram, dynamic_shapes: Any, arguments: Mapping[str, Any]
) -> frozenset[str]:
    """The placeholders with a dimension for which the user declared a maximum."""
    return frozenset(
        name
        for name, _, declared in declared_sizes(program, dynamic_shapes, arguments)
        if (getattr(declared, "max", None) or _NO_LIMIT) < _NO_LIMIT
    )


def dynamic_axes(program: torch.export.ExportedProgram, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The axes of each input whose size is dynamic.

    Args:
        program: The captured program.
        names: The ONNX names of the inputs that are tensors or dynamic ints, in order.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    user = [values.get(str(name)) for name in program.graph_signature.user_inputs]
    inputs = [value for value in user if isinstance(value, (torch.Tensor, torch.SymInt))]
    return {
        name: tuple(axis for axis, size in enumerate(getattr(value, "shape", ())) if not str(size).isdecimal())
        for name, value in zip(names, inputs, strict=False)
    }


def declared_sizes(
    program: torch.export.ExportedProgram, dynamic_shapes: Any, arguments: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Per declared dimension: the placeholder's name, the captured size, and the declaration."""
    if not dynamic_shapes:
        return
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names = [
        getattr(spec.arg, "name", "")
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    for name, spec in zip(names, _flat_specs(dynamic_shapes, arguments), strict=False):
        value = values.get(name)
        for axis, dimension in spec.items() if isinstance(spec, Mapping) else enumerate(spec or ()):
            if isinstance(value, torch.Tensor) and axis < value.dim():
                yield name, value.shape[axis], dimension


def _flat_specs(dynamic_shapes: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """One specification per flattened example input."""
    if isinstance(dynamic_shapes, Mapping):
        pairs = [(dynamic_shapes.get(name), value) for name, value in arguments.items()]
    else:
        pairs = list(zip(dynamic_shapes, arguments.values(), strict=False))
    found: list[Any] = []

    def add(path: str, leaf: Any, entry: Any) -> None:
        found.append(entry if isinstance(leaf, torch.Tensor) else None)

    for spec, value in pairs:
        map_declared(add, "", value, spec)
    return found
