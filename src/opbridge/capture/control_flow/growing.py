"""Lists and tuples that each iteration of a loop adds elements to.

The graph of a loop has a tensor for each of them, with as many rows as the loop may have iterations, into which an
iteration writes what it adds.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from opbridge.capture.control_flow.rows import Rows, as_rows, columns_of
from opbridge.capture.control_flow.site import Site, described, refuse, refuse_variable
from opbridge.capture.control_flow.uneven import filled, with_known_length
from opbridge.capture.control_flow.values import same_shape
from opbridge.torch_graph.subgraphs import symbols_tracked

__all__ = ["GrowingLists"]


@dataclasses.dataclass(frozen=True)
class _Growth:
    """A list or tuple that each iteration adds elements to.

    Attributes:
        like: The elements of one iteration, stacked.
        kept: Whether each element may be left out.
        are_numbers: Whether they are Python numbers and not tensors.
        at_front: Whether they are inserted before the others and not appended.
        joined: For elements that differ in size along a dimension, whose rows ``like`` has: this dimension.
        elements: The number of such elements of one iteration; None for elements of one size.
    """

    like: Tensor
    kept: bool
    are_numbers: bool
    at_front: bool
    joined: int | None = None
    elements: Any = None

    def agrees(self, other: _Growth) -> bool:
        """Whether the same tensors can take the elements of both."""
        same = self.like.dtype == other.like.dtype and same_shape(self.like.shape, other.like.shape)
        return same and dataclasses.replace(self, like=other.like) == other

    def rows(self, values: Tensor, kept: Tensor | None, lengths: Tensor | None) -> Rows:
        """The elements of all iterations, in their order in the list."""
        if self.joined is not None:
            parts = [one.flip(0) if self.at_front else one for one in (values, kept, lengths) if one is not None]
            values, kept, lengths = (one.flatten(0, 1) for one in parts)
            return Rows(values, kept, joined=self.joined, lengths=lengths)
        rows = Rows(values.flatten(0, 1), kept.flatten() if kept is not None else None, self.are_numbers)
        return rows.reversed() if self.at_front else rows


@dataclasses.dataclass(frozen=True)
class _Added:
    """What an iteration adds to a list."""

    name: str
    elements: Sequence[Any]
    at_front: bool


@dataclasses.dataclass(frozen=True)
class _Grown:
    """How a list grows.

    Attributes:
        columns: Its elements; if these are tuples, dicts or the like, each of their parts.
        structure: How an element is made of its parts; None if it is one tensor or number.
    """

    columns: Sequence[_Growth]
    structure: Any

    def agrees(self, other: _Grown) -> bool:
        """Whether the same tensors can take the elements of both."""
        return self.structure == other.structure and all(map(_Growth.agrees, self.columns, other.columns))


class GrowingLists:
    """The lists of a loop that grow.

    Args:
        site: The statement.
        may_end: Whether the loop may end before the largest number of iterations.
        fills: Whether tensors of different sizes are filled up.

    Attributes:
        uneven: A list whose elements had another shape in the last pass over the loop than before.
    """

    def __init__(self, site: Site, may_end: bool, fills: bool) -> None:
        self.site = site
        self.fills = fills
        self.may_end = may_end
        self.uneven: str | None = None
        self._symbols = symbols_tracked()
        self._growth: dict[int, _Grown] = {}
        self._added: dict[int, _Added] = {}
        self._kept: dict[int, list[tuple[Tensor | None, Tensor | None]]] = {}

    def before(self, length: Any) -> list[Tensor]:
        """The tensors before the loop: of a list whose elements may be left out also which it has, and their sizes.

        Args:
            length: The largest number of iterations.
        """
        tensors = []
        for growth in (column for one in self._growth.values() for column in one.columns):
            count = torch.sym_max(length, 0) if isinstance(length, torch.SymInt) else max(length, 0)
            like = growth.like
            tensors.append(torch.zeros((count, *like.shape), dtype=like.dtype, device=like.device))
            if growth.kept:
                tensors.append(torch.zeros((count, like.shape[0]), dtype=torch.bool))
            if growth.elements is not None:
                tensors.append(torch.zeros((count, growth.elements), dtype=torch.int64))
        return tensors

    def rows(self, tensors: Sequence[Tensor], index: Tensor | None) -> dict[int, Rows]:
        """The elements that lists have grown by: before an iteration, or in all of them.

        Args:
            tensors: The tensors.
            index: The number of the iteration; None after the loop.
        """
        self._added.clear()
        remaining, found = list(tensors), {}
        for number, grown in self._growth.items():
            columns = []
            for growth in grown.columns:
                values, kept = remaining.pop(0), remaining.pop(0) if growth.kept else None
                if kept is None and index is not None:
                    kept = (torch.arange(values.shape[0]) < index)[:, None].expand(values.shape[:2])
                columns.append(growth.rows(values, kept, remaining.pop(0) if growth.elements is not None else None))
            structure = grown.structure
            found[number] = columns[0] if structure is None else Rows(tuple(columns), structure=structure)
        return found

    def with_rows(self, number: int, value: Any, rows: Rows) -> Any:
        """A list with the elements that it has grown by."""
        return type(value)([rows, *value] if self._growth[number].columns[0].at_front else [*value, rows])

    def without_added(self, number: int, name: str, before: Any, after: Any, rows: Rows | None) -> Any:
        """A variable after an iteration without what this iteration and those before it have added to it.

        Args:
            number: The number of the variable.
            name: Its name.
            before: Its value before the iteration.
            after: Its value after it.
            rows: What the iterations before have added; None for nothing.
        """
        kept, added, at_front = _grown(before, after)
        if not added and number not in self._growth:
            return after
        self._added[number] = _Added(name, added, at_front)
        if rows is None:
            return kept
        others = [one for one in kept if not isinstance(one, Rows) or _values(one) is not _values(rows)]
        if len(others) != len(kept) - 1:
            refuse_variable(self.site, name, "is a list that grows, and that also loses elements")
        return type(kept)(others)

    def changed(self, length: Any) -> bool:
        """Whether the tensors can't take what the iteration has added; others will be used for the next.

        Args:
            length: The largest number of iterations; None if it is not known.
        """
        changed, self.uneven = False, None
        for number, added in self._added.items():
            new, self._kept[number] = self._growth_by(added, length)
            known = self._growth.get(number)
            if known is None or not known.agrees(new):
                changed = True
                self.uneven = self.uneven if known is None else added.name
            self._growth[number] = new
            if any(free_unbacked_symbols(size) - self._symbols for one in new.columns for size in one.like.shape[1:]):
                self._refuse_uneven(added.name)
        return changed

    def refuse_uneven(self) -> None:
        """Raise an error if a list gets elements of another shape in each iteration."""
        if self.uneven is not None:
            self._refuse_uneven(self.uneven)

    def _refuse_uneven(self, name: str) -> NoReturn:
        refuse(
            self.site,
            f"{described(name, 'the list ')} gets tensors of different sizes",
            "pad them to one size, and keep their lengths in another list; or leave the dimension that counts the "
            "iterations out of dynamic_shapes if its size is always the same.",
        )

    def _growth_by(self, added: _Added, length: Any) -> tuple[_Grown, list[tuple[Tensor | None, Tensor | None]]]:
        """How a list grows, which elements it keeps if that depends on data, and their sizes if these do."""
        columns, structure = columns_of(added.elements) or ([list(added.elements)], None)
        parts = [self._growth_of_parts(dataclasses.replace(added, elements=column), length) for column in columns]
        return _Grown([growth for growth, _ in parts], structure), [kept for _, kept in parts]

    def _growth_of_parts(self, added: _Added, length: Any) -> tuple[_Growth, tuple[Tensor | None, Tensor | None]]:
        """The same of elements that are tensors or numbers."""
        name = added.name
        if length is None:
            refuse(
                self.site,
                f"{described(name, 'the list ')} grows in a loop without a largest number of iterations",
                "end the loop after a largest number of iterations, as `for i in range(largest)` with a `break`, or "
                "write into a tensor of a fixed size.",
            )
        uneven = filled(added.elements, self._symbols) if self.fills else None
        if uneven is not None:
            assert uneven.lengths is not None
            growth = _Growth(uneven.values, True, False, added.at_front, uneven.joined, uneven.lengths.shape[0])
            return growth, (uneven.kept, uneven.lengths)
        parts = [as_rows(one) for one in added.elements]
        rows = [part for part in parts if part is not None]
        if not rows or len(rows) < len(parts):
            reason = f"{described(name, 'the list ')} gets elements that are not made of tensors and numbers"
            refuse(self.site, reason, "append tensors, numbers, or tuples of them that are alike.")
        if added.at_front:
            rows = [part.reversed() for part in reversed(rows)]
        like, kept = torch.cat([part.values for part in rows]) if len(rows) > 1 else rows[0].values, None
        if any(part.kept is not None for part in rows):
            kept = torch.cat([_present(part) for part in rows])
        limited = with_known_length(like, self._symbols)
        if limited is not None and limited is not like:
            kept = torch.ones(like.shape[:1], dtype=torch.bool) if kept is None else kept
            like, kept = limited, with_known_length(kept, self._symbols)
        growth = _Growth(like, kept is not None or self.may_end, rows[0].are_numbers, added.at_front)
        return growth, (kept, None)

    def written(self, tensors: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        """The tensors with the elements of this iteration."""
        written, remaining = [], list(tensors)
        columns = [
            column
            for number, grown in self._growth.items()
            for column in zip(grown.columns, self._kept[number], strict=True)
        ]
        for growth, (kept, lengths) in columns:
            written.append(remaining.pop(0).index_put((index,), growth.like))
            if growth.kept:
                present = torch.ones(growth.like.shape[:1], dtype=torch.bool) if kept is None else kept
                written.append(remaining.pop(0).index_put((index,), present))
                if lengths is not None:
                    written.append(remaining.pop(0).index_put((index,), lengths))
        return written


def _grown(before: Any, after: Any) -> tuple[Any, Sequence[Any], bool]:
    """What a variable had before an iteration, what was added to it if it is a list, and whether at the front."""
    if type(before) is not type(after) or type(after) not in (list, tuple) or len(after) <= len(before):
        return after, (), False
    added = len(after) - len(before)
    is_at_end = all(map(operator.is_, before, after))
    if not is_at_end and all(map(operator.is_, before, after[added:])):
        return after[added:], after[:added], True
    return after[: len(before)], after[len(before) :], False


def _values(rows: Rows) -> Tensor:
    """The tensor by which rows are found in a list."""
    return rows.values if rows.structure is None else rows.values[0].values


def _present(rows: Rows) -> Tensor:
    return torch.ones(rows.values.shape[:1], dtype=torch.bool) if rows.kept is None else rows.kept
