"""Elements of a Python list whose number depends on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from opbridge.capture.control_flow.list_uses import refuse_uneven, refuse_use
from opbridge.capture.control_flow.trees import read_only, tree_flatten, tree_unflatten
from opbridge.torch_graph.largest_sizes import note_range

__all__ = [
    "JOINS",
    "Rows",
    "Unassigned",
    "are_stackable",
    "as_rows",
    "assign",
    "columns_of",
    "element",
    "has_columns",
    "has_rows",
    "length",
    "of_parts",
    "row",
    "section",
    "sections",
    "stacked",
    "uneven_dim",
]


class Unassigned:
    """The elements of ``[None] * n`` with a dynamic n, in the place of the tensor of their values.

    Attributes:
        length: Their number.
    """

    def __init__(self, length: Any) -> None:
        self.length = length


class Rows:
    """Consecutive elements of a list, one for each row of a tensor, in the place of one element.

    ``torch.stack`` and ``torch.cat`` of the list, and the operations on lists in converted code, take the rows as
    elements. Any other use is refused.

    Args:
        values: The elements, stacked: shape (n, *element).
        kept: Which of them are elements of the list: bool, shape (n,). None for all.
        are_numbers: Whether they are Python numbers and not tensors.
        joined: For rows of elements that differ in size along a dimension: this dimension, along which ``torch.cat``
            joins them. None if each row is an element.
        lengths: For such rows: the size of each element plus 1, and 0 for one that the list does not have. int64.
        structure: For elements that are tuples, dicts or the like: how they are made of tensors and numbers, of which
            each has its own rows in ``values``.
    """

    def __init__(
        self,
        values: Any,
        kept: Tensor | None = None,
        are_numbers: bool = False,
        joined: int | None = None,
        lengths: Tensor | None = None,
        structure: Any = None,
    ) -> None:
        self.structure = structure
        self.values = values
        self.kept = kept
        self.are_numbers = are_numbers
        self.joined = joined
        self.lengths = lengths

    def elements(self) -> Tensor:
        """The elements that are kept, stacked."""
        self._refuse_parts()
        if self.structure is not None:
            raise refuse_use("code that takes tensors or numbers, not tuples of them,")
        if isinstance(self.values, Unassigned):
            raise refuse_use("code that reads an element before it is assigned,")
        return self._kept()

    def joined_along(self, dim: int) -> Tensor:
        """The elements joined by ``torch.cat``."""
        if self.joined is None:
            return _joined(self.elements(), dim)
        rows = self._kept()
        if dim % rows.dim() != self.joined:
            raise refuse_use(f"torch.cat along dimension {dim} of tensors that differ in size along {self.joined},")
        return rows.movedim(0, self.joined)

    def in_parts(self, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """The elements joined along a dimension, which are rows here, which rows are kept, and ``lengths``."""
        if self.lengths is not None:
            kept = torch.ones(self.values.shape[:1], dtype=torch.bool) if self.kept is None else self.kept
            return self.values, kept, self.lengths
        size, values = self.values.shape[dim + 1], self.values.movedim(dim + 1, 1)
        kept = torch.ones(values.shape[:1], dtype=torch.bool) if self.kept is None else self.kept
        return values.flatten(0, 1), kept[:, None].expand(-1, size).flatten(), kept * (size + 1)

    def sizes(self, dim: int) -> Tensor:
        """The size of each element along a dimension: int64."""
        if self.lengths is None:
            return torch.full((self.count(),), self.values.shape[dim + 1], dtype=torch.int64)
        return self.lengths - 1 if self.kept is None else self.lengths[self.lengths > 0] - 1

    def _kept(self) -> Tensor:
        return self.values if self.kept is None else self.values[self.kept]

    def _refuse_parts(self) -> None:
        if self.joined is not None:
            raise refuse_uneven()

    def count(self) -> Any:
        """The number of elements that are kept."""
        if self.structure is not None:
            return self.values[0].count()
        if self.kept is None:
            elements = self.values if self.lengths is None else self.lengths
            return elements.length if isinstance(elements, Unassigned) else elements.shape[0]
        number = (self.kept if self.lengths is None else self.lengths > 0).sum().item()
        torch._check(number >= 0)
        return number

    def reversed(self) -> Rows:
        """The elements from the last to the first."""
        self._refuse_parts()
        if self.structure is not None:
            return Rows(tuple(one.reversed() for one in self.values), structure=self.structure)
        return Rows(self.values.flip(0), None if self.kept is None else self.kept.flip(0), self.are_numbers)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Join the elements of a list; refuse anything else."""
        join = JOINS.get(getattr(func, "__name__", ""))
        if join is None or not args:
            raise refuse_use(repr(getattr(func, "__name__", str(func))))
        return join(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        """Refuse to be used as an element."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse_use(repr(name))


def _refusing(name: str) -> Callable[..., Any]:
    def refusing(*arguments: Any) -> Any:
        raise refuse_use(repr(name.strip("_")))

    return refusing


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_OTHERS = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "bool", "len", "iter", "getitem")
for _name in (*_ARITHMETIC, *(f"r{_name}" for _name in _ARITHMETIC), *_OTHERS):
    setattr(Rows, f"__{_name}__", _refusing(_name))


def has_rows(value: Any) -> bool:
    """Whether a value is a list or tuple whose length is known only at run time."""
    return type(value) in (list, tuple) and Rows in map(type, value)


def columns_of(value: Sequence[Any]) -> tuple[list[list[Any]], Any] | None:
    """The parts of the elements of a list, each in a list of its own, and how an element is made of them.

    None if the elements are not alike tuples, dicts, objects or the like, or have no parts.
    """
    elements = [
        (one.values, one.structure) if isinstance(one, Rows) and one.structure is not None else tree_flatten(one)
        for one in value
    ]
    structure = elements[0][1] if elements else None
    if structure is None or not structure.num_leaves or structure.is_leaf():
        return None
    if any(isinstance(one, Rows) and one.structure is None for one in value):
        return None
    if any(other != structure for _, other in elements):
        return None
    return [list(parts) for parts in zip(*(parts for parts, _ in elements), strict=True)], structure


def of_parts(parts: Sequence[Any], structure: Any) -> Any:
    """An element of a list, made of its parts."""
    return read_only(tree_unflatten(parts, structure), _refuse_change)


def _refuse_change() -> NoReturn:
    raise refuse_use("a statement that changes one of its elements, which are tuples, dicts or objects,")


def has_columns(value: Any) -> bool:
    """Whether a list with rows has elements that are tuples, dicts or the like."""
    return any(type(one) is Rows and one.structure is not None for one in value)


def _columns(value: Sequence[Any]) -> tuple[list[list[Any]], Any]:
    found = columns_of(value)
    if found is None:
        raise refuse_use("code that needs its elements, which have different forms,")
    return found


def length(value: Any) -> Any:
    """``len`` of a list with rows."""
    return sum(one.count() if type(one) is Rows else 1 for one in value)


_NUMBERS = {int: torch.int64, torch.SymInt: torch.int64, float: torch.float64, torch.SymFloat: torch.float64}


def as_rows(value: Any) -> Rows | None:
    """An element of a list as rows; None if it is neither a tensor nor a number."""
    if isinstance(value, Tensor):
        return Rows(value.unsqueeze(0))
    if type(value) in _NUMBERS:
        return Rows(torch.full((1,), value, dtype=_NUMBERS[type(value)]), are_numbers=True)
    return value if isinstance(value, Rows) else None


def uneven_dim(value: Any) -> int | None:
    """The dimension along which the tensors of a list with rows differ in size; None if they do not."""
    joined = next((one.joined for one in value if type(one) is Rows and one.joined is not None), None)
    tensors = [one.values if type(one) is Rows else one for one in value]
    if joined is not None or not all(isinstance(one, Tensor) for one in tensors):
        return joined
    shapes = [one.shape[1:] if type(row) is Rows else one.shape for row, one in zip(value, tensors, strict=True)]
    if len(set(map(len, shapes))) > 1:
        return None
    differ = [dim for dim, sizes in enumerate(zip(*shapes, strict=True)) if not _all_equal(sizes)]
    return differ[0] if len(differ) == 1 else None


def _all_equal(sizes: Sequence[Any]) -> bool:
    return all(statically_known_true(size == sizes[0]) for size in sizes)


def sections(value: Any, dim: int) -> tuple[Tensor, Tensor]:
    """The tensors of a list joined along a dimension, and the size of each of them: int64."""
    sizes = [
        one.sizes(dim) if isinstance(one, Rows) else torch.full((1,), one.shape[dim], dtype=torch.int64)
        for one in value
    ]
    return _cat(value, dim), torch.cat(sizes)


def section(tensor: Tensor, dim: int, start: Any, size: Any) -> Tensor:
    """A part of a tensor, of a dynamic size."""
    for number in (start, size):
        torch._check(number >= 0)
    for end in (start, start + size):
        torch._check(end <= tensor.shape[dim])
    if isinstance(size, torch.SymInt):
        note_range(size, [0, tensor.shape[dim]], free_unbacked_symbols(tensor.shape[dim]))
    return tensor.narrow(dim, start, size)


def stacked(value: Any) -> tuple[Tensor, bool]:
    """The elements of a list as one tensor, and whether they are numbers."""
    parts = [as_rows(one) for one in value]
    if any(part is None for part in parts):
        raise refuse_use("code that needs its elements, which are not all tensors or numbers,")
    rows = [part.elements() for part in parts if part is not None]
    numbers = all(part.are_numbers for part in parts if part is not None)
    return rows[0] if len(rows) == 1 else torch.cat(rows, 0), numbers


def row(tensor: Tensor, index: Any) -> Tensor:
    """``tensor[index]`` with an integer, which may be a dynamic number or a tensor of rank 0."""
    if not isinstance(index, (torch.SymInt, Tensor)):
        return tensor[index]
    return tensor.index_select(0, _position(tensor, index).reshape(1)).squeeze(0)


def _position(tensor: Tensor, index: Any) -> Tensor:
    """An index of the first dimension, counted from its beginning."""
    position = index if isinstance(index, Tensor) else torch.full((), index, dtype=torch.int64)
    return torch.where(position < 0, position + tensor.shape[0], position)


def element(value: Any, index: Any) -> Any:
    """``value[index]``, also of a list with rows, or of a list of tensors with a dynamic number."""
    if isinstance(value, Tensor) and has_rows(index):
        return value[stacked(index)[0]]
    if not has_rows(value):
        return _stacked_at(value, index) if isinstance(index, (torch.SymInt, Tensor)) else value[index]
    if isinstance(index, slice):
        return type(value)(_sliced(value, index))
    if isinstance(index, int) and -len(value) <= index < len(value):
        passed = value[: index + 1] if index >= 0 else value[index:]
        if not has_rows(passed):
            return value[index]
    if has_columns(value):
        columns, structure = _columns(value)
        return of_parts([element(column, index) for column in columns], structure)
    dim = uneven_dim(value)
    if dim is not None:
        values, sizes = sections(value, dim)
        return section(values, dim, row(sizes.cumsum(0) - sizes, index).item(), row(sizes, index).item())
    tensor, are_numbers = stacked(value)
    found = row(tensor, index)
    return found.item() if are_numbers else found


def assign(value: Any, index: Any, new: Any) -> None:
    """``value[index] = new``, also of a list with rows."""
    if type(value) is not list or not has_rows(value) or isinstance(index, slice):
        value[index] = new
        return
    given = as_rows(new)
    if len(value) > 1 or given is None:
        raise refuse_use("an assignment to one of its elements")
    (rows,), (row,) = value, given.values
    if isinstance(rows.values, Unassigned):
        values = torch.zeros((rows.values.length, *row.shape), dtype=row.dtype, device=row.device)
    else:
        values = rows.elements()
    value[:] = [Rows(values.index_put((_position(values, index),), row.to(values.dtype)), None, rows.are_numbers)]


def are_stackable(value: Any) -> bool:
    """Whether a value is a list or tuple of tensors of one shape and dtype."""
    if type(value) not in (list, tuple) or not value or not all(isinstance(one, Tensor) for one in value):
        return False
    return all(one.dtype == value[0].dtype and one.shape == value[0].shape for one in value)


def _stacked_at(value: Any, index: Any) -> Any:
    """An element of a list or tuple of tensors of one shape, by a dynamic number."""
    return row(torch.stack(list(value)), index) if are_stackable(value) else value[index]


def _sliced(value: Sequence[Any], index: slice) -> list[Any]:
    if index == slice(None):
        return list(value)
    if index == slice(None, None, -1):
        return [one.reversed() if isinstance(one, Rows) else one for one in reversed(value)]
    if isinstance(index.step, int) and index.step < 0:
        raise refuse_use("a slice with a negative step")
    if has_columns(value):
        columns, structure = _columns(value)
        return [Rows(tuple(row for column in columns for row in _sliced(column, index)), structure=structure)]
    tensor, are_numbers = stacked(value)
    return [Rows(tensor[index], are_numbers=are_numbers)]


def _stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    values, _ = stacked(tensors)
    return values if dim == 0 else values.movedim(0, dim)


def _cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [one.joined_along(dim) if isinstance(one, Rows) else one for one in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _joined(elements: Tensor, dim: int) -> Tensor:
    """The rows of a tensor joined along a dimension of theirs."""
    dim = dim % (elements.dim() - 1)
    return elements.movedim(0, dim).flatten(dim, dim + 1)


JOINS: dict[str, Callable[..., Tensor]] = {
    "stack": _stack, "cat": _cat, "concat": _cat, "concatenate": _cat,
}  # fmt: skip
"""Functions of torch that take a list with rows, by their names."""


def _from_parts(parts: list[Any], all_kept: bool, are_numbers: bool, joined: int | None, structure: Any) -> Rows:
    if structure is not None:
        return Rows(tuple(parts), structure=structure)
    return Rows(parts[0], None if all_kept else parts[1], are_numbers, joined, None if joined is None else parts[-1])


pytree.register_pytree_node(
    Rows,
    lambda rows: (
        [*(rows.values if rows.structure else [rows.values]), *(x for x in (rows.kept, rows.lengths) if x is not None)],
        (rows.kept is None, rows.are_numbers, rows.joined, rows.structure),
    ),
    lambda children, context: _from_parts(list(children), *context),
    serialized_type_name="opbridge.Rows",
)
