"""Elements of a Python list whose number depends on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opbridge.errors import CaptureError
from opbridge.torch_graph.sources import frames_of_stack, innermost

__all__ = ["RowList", "Rows", "element"]


class Rows:
    """Consecutive elements of a list, one for each row of a tensor, in the place of one element.

    ``torch.stack`` and ``torch.cat`` of the list, and loops over it in converted code, take the rows as elements. Any
    other use is refused.

    Args:
        values: The elements, stacked: shape (n, *element).
        kept: Which of them are elements of the list: bool, shape (n,). None for all.
    """

    def __init__(self, values: Tensor, kept: Tensor | None = None) -> None:
        self.values = values
        self.kept = kept

    def elements(self) -> Tensor:
        """The elements that are kept, stacked."""
        return self.values if self.kept is None else self.values[self.kept]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Join the elements of a list; refuse anything else."""
        join = _JOINS.get(getattr(func, "__name__", ""))
        if join is None or not args:
            raise _refused(repr(getattr(func, "__name__", str(func))))
        return join(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        """Refuse to be used as an element."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise _refused(repr(name))


class RowList(list[Rows]):
    """The rows of a tensor whose number is dynamic as a list, as ``unbind`` returns them.

    Attributes:
        tensor: The rows, stacked.
    """

    def __init__(self, tensor: Tensor) -> None:
        super().__init__([Rows(tensor)])
        self.tensor = tensor

    def __iter__(self) -> Any:
        """Refuse to be unpacked."""
        raise _refused("unpacking or by a loop that was not converted")

    def __getitem__(self, index: Any) -> Any:
        """A row, or the list of some rows."""
        if not isinstance(index, slice):
            return self.tensor[index]
        if index.step is None or index.step > 0:
            return RowList(self.tensor[index])
        if index == slice(None, None, -1):
            return RowList(self.tensor.flip(0))
        raise _refused("a slice with a negative step")


def element(value: Any, index: Any) -> Any:
    """``value[index]`` with an integer or a slice, also of a list with rows."""
    if type(value) is not list or not any(isinstance(one, Rows) for one in value):
        return value[index]
    if len(value) == 1:
        rows = RowList(value[0].elements())[index]
        return [Rows(rows.tensor)] if isinstance(rows, RowList) else rows
    if index == slice(None, None, -1):
        return [Rows(one.elements().flip(0)) if isinstance(one, Rows) else one for one in reversed(value)]
    if isinstance(index, int) and -len(value) <= index < len(value):
        before = value[: index + 1] if index >= 0 else value[index:]
        if not any(isinstance(one, Rows) for one in before):
            return value[index]
    raise _refused("a subscript")


def _refused(use: str) -> CaptureError:
    line = innermost(frames_of_stack(), libraries=True)
    return CaptureError(
        f"A list whose length is known only at run time is used by {use}{f' at {line}' if line else ''}.",
        fix="join its elements with torch.stack or torch.cat, or write them into a tensor of a fixed size.",
    )


def _stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [one.elements() if isinstance(one, Rows) else one.unsqueeze(0) for one in _parts(tensors)]
    stacked = parts[0] if len(parts) == 1 else torch.cat(parts, 0)
    return stacked if dim == 0 else stacked.movedim(0, dim)


def _cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [_joined(one.elements(), dim) if isinstance(one, Rows) else one for one in _parts(tensors)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _parts(tensors: Any) -> list[Any]:
    return [Rows(tensors.tensor)] if isinstance(tensors, RowList) else list(tensors)


def _joined(elements: Tensor, dim: int) -> Tensor:
    """The rows of a tensor joined along a dimension of theirs."""
    dim = dim % (elements.dim() - 1)
    return elements.movedim(0, dim).flatten(dim, dim + 1)


_JOINS: dict[str, Callable[..., Tensor]] = {
    "stack": _stack, "cat": _cat, "concat": _cat, "concatenate": _cat,
}  # fmt: skip

pytree.register_pytree_node(
    Rows,
    lambda rows: ([rows.values] if rows.kept is None else [rows.values, rows.kept], rows.kept is None),
    lambda children, _: Rows(*children),
    serialized_type_name="opbridge.Rows",
)
