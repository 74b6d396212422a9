"""Finds the inputs of a captured graph that are indices into tables, and the number of rows of these tables."""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.targets import values_outside

__all__ = ["index_ranges"]

_ALONG_AN_AXIS = frozenset(
    {"gather", "index_select", "take_along_dim", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy"}
)
_EMBEDDINGS = frozenset({"embedding", "embedding_bag", "_embedding_bag_forward_only"})
_LISTS_OF_INDICES = frozenset({"index", "index_put", "_unsafe_index"})
# Their results contain only elements of their arguments.
_PASSES = frozenset(
    {
        *(
            "_to_copy",
            "alias",
            "cat",
            "chunk",
            "clone",
            "contiguous",
            "detach",
            "expand",
            "expand_as",
            "flatten",
            "flip",
        ),
        *("lift_fresh_copy", "narrow", "permute", "repeat", "reshape", "roll", "select", "slice", "squeeze"),
        *("split_with_sizes", "stack", "t", "to", "transpose", "type_as", "unbind", "unsqueeze", "view", "split"),
    }
)


def index_ranges(program: torch.export.ExportedProgram) -> dict[str, int]:
    """The number of rows of the smallest table that each input is an index into, by the name of the input's node.

    Only tables of a fixed size count. Inputs that are not indices are left out.
    """
    found: dict[str, int] = {}
    inside = collections.defaultdict(list)
    for inner, outer in values_outside(program).items():
        inside[outer].append(inner)
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point and value.dtype is not torch.bool:
            rows = min(_rows(node, inside), default=None)
            if rows:
                found[node.name] = rows
    return found


def _rows(index: torch.fx.Node, inside: Mapping[torch.fx.Node, Sequence[torch.fx.Node]]) -> Iterator[int]:
    """The number of rows of every table that ``index`` is used for, in branches and loops too."""
    waiting, seen = [index], {index}
    while waiting:
        current = waiting.pop()
        waiting += [inner for inner in inside.get(current, ()) if inner not in seen]
        seen.update(inside.get(current, ()))
        for user in current.users:
            rows = _table_rows(user, current)
            if rows is not None:
                yield rows
            if user not in seen and (user.target is operator.getitem or _base_name(user.target) in _PASSES):
                seen.add(user)
                waiting.append(user)


def _table_rows(node: torch.fx.Node, index: torch.fx.Node) -> int | None:
    name, args = _base_name(node.target), node.args
    size: Any = None
    if name in _EMBEDDINGS and args[1] is index:
        size = _size(args[0], 0)
    elif name in _ALONG_AN_AXIS and len(args) > 2 and args[2] is index and isinstance(args[1], int):
        size = _size(args[0], args[1])
    elif name in _LISTS_OF_INDICES and isinstance(args[1], list | tuple) and index in args[1]:
        size = _size(args[0], args[1].index(index))
    elif name == "one_hot" and args[0] is index and len(args) > 1:
        size = args[1]
    return size if isinstance(size, int) and size > 0 else None


def _size(table: Any, axis: int) -> Any:
    value = table.meta.get("val") if isinstance(table, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not -value.ndim <= axis < value.ndim:
        return None
    return value.shape[axis]


def _base_name(target: Any) -> str:
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    return target.name().split("::")[-1].split(".")[0].rstrip("_")
