"""Puts Python values in the order of keys that depend on data, as tensors that are sorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.subgraphs import constant_of

__all__ = ["depends_on_data", "in_order", "order_of_columns"]

_DTYPES = {
    bool: torch.int64, int: torch.int64, torch.SymInt: torch.int64, float: torch.float64, torch.SymFloat: torch.float64,
}  # fmt: skip


def depends_on_data(value: Any) -> bool:
    """Whether a key, a number or a tensor of one element, or a tuple of them, is known only at run time."""
    if isinstance(value, (tuple, list)):
        return any(map(depends_on_data, value))
    if isinstance(value, Tensor):
        return is_fake(value) and constant_of(value) is None
    return isinstance(value, (torch.SymInt, torch.SymFloat)) and bool(free_unbacked_symbols(value))


def _order_of(keys: Sequence[Any], reverse: bool) -> Tensor | None:
    """The positions of values in the order of their keys, equal ones in the order that they have.

    Args:
        keys: For each value, a number, a tensor of one element, or a tuple of them.
        reverse: Whether the largest is first.

    Returns:
        int64, shape (n,); None if the keys have other parts.
    """
    parts = [key if isinstance(key, (tuple, list)) else (key,) for key in keys]
    if len({len(part) for part in parts}) != 1:
        return None
    columns = [_column(column) for column in zip(*parts, strict=True)]
    if any(column is None or column.dim() > 1 for column in columns):
        return None
    return order_of_columns([column for column in columns if column is not None], reverse)


def order_of_columns(columns: Sequence[Tensor], reverse: bool) -> Tensor:
    """The positions of rows in the order of their elements, of which the first differing ones decide."""
    order = columns[-1].argsort(stable=True, descending=reverse)
    for column in reversed(columns[:-1]):
        order = order[column[order].argsort(stable=True, descending=reverse)]
    return order


def in_order(values: Sequence[Any], keys: Sequence[Any], reverse: bool) -> list[Any] | None:
    """Values in the order of their keys, equal ones in the order that they have.

    Args:
        values: Numbers, tensors of one shape, or alike tuples, lists or dicts of them.
        keys: For each value, a number, a tensor of one element, or a tuple of them.
        reverse: Whether the largest is first.

    Returns:
        The values; None if a graph can't choose from these values by these keys.
    """
    order = _order_of(keys, reverse)
    columns = _columns(values) if order is not None else None
    if columns is None or order is None:
        return None
    return [_element_at(columns, position) for position in order.unbind(0)]


Columns = tuple[list[Any], pytree.TreeSpec]


def _columns(values: Sequence[Any]) -> Columns | None:
    """The tensors and numbers of alike values, each over all values, and the form of a value."""
    flattened = [pytree.tree_flatten(value) for value in values]
    structure = flattened[0][1]
    if any(other != structure for _, other in flattened):
        return None
    columns = []
    for parts in zip(*(leaves for leaves, _ in flattened), strict=True):
        is_constant = not isinstance(parts[0], Tensor) and all(_is_same(part, parts[0]) for part in parts)
        column = parts[0] if is_constant else _column(parts)
        if column is None and parts[0] is not None:
            return None
        columns.append((column, parts))
    return columns, structure


def _element_at(columns: Columns, position: Tensor) -> Any:
    """The value at a position, an int64 tensor of rank 0."""
    leaves = [_at(column, parts, position) for column, parts in columns[0]]
    return pytree.tree_unflatten(leaves, columns[1])


def _at(column: Any, parts: Sequence[Any], position: Tensor) -> Any:
    if not isinstance(column, Tensor):
        return column
    found = column.index_select(0, position.reshape(1)).squeeze(0)
    if isinstance(parts[0], Tensor):
        return found
    number: Any = found.item()
    if all(type(part) is int for part in parts):  # A position, for example.
        torch._check(number >= min(parts))
        torch._check(number <= max(parts))
    return number


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b


def _column(parts: Sequence[Any]) -> Tensor | None:
    """Tensors of one shape, or numbers, as one tensor; None for anything else."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if any(type(part) not in _DTYPES for part in parts if not isinstance(part, Tensor)):
        return None
    if not tensors:
        dtypes = {_DTYPES[type(part)] for part in parts}
        dtype = torch.float64 if len(dtypes) > 1 else dtypes.pop()
        return torch.stack([torch.full((), part, dtype=dtype) for part in parts])
    like = tensors[0]
    if len(tensors) < len(parts) or any(one.shape != like.shape or one.dtype != like.dtype for one in tensors):
        return None
    return torch.stack(tensors)
