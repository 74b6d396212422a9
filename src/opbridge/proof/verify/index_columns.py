"""Which inputs are indices into another: RoI operators read the number of an image, ``embedding_bag`` offsets."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from opbridge.proof.verify.float64_call import base_name
from opbridge.torch_graph.targets import calls_in, values_outside

__all__ = ["OFFSETS", "index_columns"]

OFFSETS = -1
"""Stands for the whole tensor, as None does, if its numbers ascend."""

_ROI_OPERATORS = frozenset({"roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "roi_align_rotated", "prroi_pool"})
"""They take the images and the boxes, whose first column is the position of the image in the batch."""
_BAGS = frozenset({"embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"})
"""They take a table, the indices of its rows, and the offsets in these indices where a bag begins."""
_SAME_COLUMNS = frozenset(
    {"_to_copy", "alias", "clone", "contiguous", "detach", "detach_", "expand", "index_select", "lift_fresh_copy", "to"}
    | {"type_as"}
)


def index_columns(program: torch.export.ExportedProgram) -> Mapping[str, Mapping[int | None, Any]]:
    """The size that each column of an input counts up to, by the name of the input's node: images, or indices.

    Returns:
        For each input, by column of the last axis: the size, which may be symbolic. The column None stands for the
        whole tensor, and :data:`OFFSETS` too.
    """
    found: dict[str, dict[int | None, Any]] = {}
    outside = values_outside(program)
    for node in calls_in(program):
        name = base_name(node.target)
        if name in _ROI_OPERATORS:
            counted, sources = node.args[0], _sources(node.args[1], 0)
        elif name in _BAGS:
            counted, sources = node.args[1], ((source, OFFSETS) for source, _ in _sources(node.args[2], None))
        else:
            continue
        for source, column in _inputs(sources, outside):
            if _shape(counted):
                found.setdefault(source.name, {})[column] = _shape(counted)[0]
    return found


def _inputs(
    sources: Iterable[tuple[torch.fx.Node, int | None]], outside: Mapping[torch.fx.Node, torch.fx.Node]
) -> Iterator[tuple[torch.fx.Node, int | None]]:
    """The inputs of the program that the inputs of a branch or a loop are copied from."""
    for source, column in sources:
        if source in outside:
            yield from _inputs(_sources(outside[source], column), outside)
        else:
            yield source, column


def _sources(node: Any, column: int | None) -> Iterator[tuple[torch.fx.Node, int | None]]:
    """The inputs that a column is copied from, each with its column there.

    Args:
        node: A value.
        column: A column of its last axis; None for the whole.
    """
    if not isinstance(node, torch.fx.Node):
        return
    if node.op == "placeholder":
        yield node, column
        return
    name, args = base_name(node.target), node.args
    if node.target is operator.getitem and isinstance(args[0], torch.fx.Node):
        yield from _sources_of_part(args[0], int(args[1]), column)  # type: ignore[arg-type]
    elif name in _SAME_COLUMNS:
        yield from _sources(args[0], column)
    elif name in ("cat", "stack"):
        yield from _sources_of_joined(node, column)
    elif name == "slice":
        yield from _sources_of_slice(node, column)
    elif name == "select" and not _is_last(args[0], _dim(node)):
        yield from _sources(args[0], column)
    elif name == "select" and column is None:
        yield from _sources(args[0], int(args[2]))  # type: ignore[arg-type]
    elif name == "index" and isinstance(args[1], list | tuple) and len(args[1]) < _rank(args[0]):
        yield from _sources(args[0], column)
    elif name in ("unsqueeze", "view", "reshape", "squeeze", "flatten"):
        yield from _sources_of_view(node, column)


def _sources_of_slice(node: torch.fx.Node, column: int | None) -> Iterator[tuple[torch.fx.Node, int | None]]:
    """Through rows or columns that follow one another."""
    start: Any = node.args[2] if len(node.args) > 2 else 0
    if not _is_last(node.args[0], _dim(node)) or _rank(node) == 1:
        yield from _sources(node.args[0], column)
        return
    known = isinstance(start, int | None) and (start or 0) >= 0 and (len(node.args) < 5 or node.args[4] == 1)
    if known and (column is not None or _equal(_shape(node)[-1], 1)):
        yield from _sources(node.args[0], (column or 0) + (start or 0))


def _sources_of_view(node: torch.fx.Node, column: int | None) -> Iterator[tuple[torch.fx.Node, int | None]]:
    """Through a change of the shape: the last axis stays, or a last axis of one column is added or removed."""
    before, after = _shape(node.args[0]), _shape(node)
    if column is None or (before and after and _equal(before[-1], after[-1])):
        alone = column is None and bool(before) and _equal(before[-1], 1)
        yield from _sources(node.args[0], 0 if alone else column)
    elif after and _equal(after[-1], 1) and column == 0:
        yield from _sources(node.args[0], None)


def _sources_of_part(split: torch.fx.Node, part: int, column: int | None) -> Iterator[tuple[torch.fx.Node, int | None]]:
    if base_name(split.target) not in ("split", "split_with_sizes", "chunk", "unbind"):
        return
    if base_name(split.target) == "unbind":
        yield from _sources(split.args[0], part if _is_last(split.args[0], _dim(split, 1, 0)) else column)
    elif not _is_last(split.args[0], _dim(split, 2, 0)):
        yield from _sources(split.args[0], column)
    elif column is not None:
        widths = [value.shape[-1] for value in split.meta["val"][:part]]
        yield from _sources(split.args[0], column + sum(widths))


def _sources_of_joined(node: torch.fx.Node, column: int | None) -> Iterator[tuple[torch.fx.Node, int | None]]:
    """Through ``cat`` and ``stack``: the part that holds the column, or all parts if they are rows."""
    parts, along = node.args[0], _dim(node, 1, 0)
    if not isinstance(parts, list | tuple):
        return
    if column is None or not _is_last(node, along):
        for part in parts:
            yield from _sources(part, column)
    elif base_name(node.target) == "stack":
        yield from _sources(parts[column], None)
    else:
        for part in parts:
            width = _shape(part)[-1]
            if not isinstance(width, int):
                return
            if column < width:
                yield from _sources(part, column)
                return
            column -= width


def _dim(node: torch.fx.Node, position: int = 1, default: int = 0) -> int:
    given = node.args[position] if len(node.args) > position else node.kwargs.get("dim", default)
    return int(given)  # type: ignore[arg-type]


def _shape(node: Any) -> tuple[Any, ...]:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _rank(node: Any) -> int:
    return len(_shape(node))


def _is_last(node: Any, axis: int) -> bool:
    return axis in (-1, _rank(node) - 1)


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one == other
