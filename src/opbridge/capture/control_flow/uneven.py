"""Tensors that iterations of a loop append to a list, and that differ in size along one dimension.

Each is filled up to a size that it can't exceed, and the rows that it has are marked. ``torch.cat`` of the list is the
marked rows, one after the other. The sizes are kept too, so that each tensor can be found among the rows.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from opbridge.capture.control_flow.rows import JOINS, Rows, sections
from opbridge.torch_graph.largest_sizes import largest

__all__ = ["filled", "length_of", "present_in", "rows_of", "with_known_length"]


def filled(elements: Sequence[Any], known: Set[Any]) -> Rows | None:
    """Tensors of different sizes as rows of one tensor.

    Args:
        elements: What an iteration appends.
        known: The symbols of sizes that are the same in each iteration.

    Returns:
        The rows; None if the elements are not all tensors, do not differ, differ along several dimensions, or have no
        largest size.
    """
    dims: set[int] = set()
    for element in elements:
        if isinstance(element, Tensor):
            dims.update(dim for dim, size in enumerate(element.shape) if not free_unbacked_symbols(size) <= known)
        elif not isinstance(element, Rows) or element.are_numbers or element.structure is not None:
            return None
        elif element.joined is not None:
            dims.add(element.joined)
    if len(dims) != 1:
        return None
    (dim,) = dims
    parts: list[tuple[Tensor, ...]] = []
    for element in elements:
        if isinstance(element, Rows):
            parts.append(element.in_parts(dim))
            continue
        most = largest(element.shape[dim], known)
        if most is None:
            return None
        parts.append(tuple(form(element, most, dim) for form in (rows_of, present_in, length_of)))
    limited = [with_known_length(torch.cat(tensors), known) for tensors in zip(*parts, strict=True)]
    values, present, lengths = limited
    return None if values is None or lengths is None else Rows(values, present, joined=dim, lengths=lengths)


def with_known_length(tensor: Tensor, known: Set[Any]) -> Tensor | None:
    """A tensor with zeros at its end, if its first size depends on data; None if there is no largest size."""
    if free_unbacked_symbols(tensor.shape[0]) <= known:
        return tensor
    most = largest(tensor.shape[0], known)
    return None if most is None else rows_of(tensor, most, 0)


def rows_of(tensor: Tensor, most: Any, dim: int) -> Tensor:
    """A tensor as ``most`` rows, of which the last are zeros."""
    front = tensor.movedim(dim, 0)
    return torch.cat([front, front.new_zeros(most - front.shape[0], *front.shape[1:])])


def present_in(tensor: Tensor, most: Any, dim: int) -> Tensor:
    """Which of ``most`` rows a tensor has: bool."""
    return torch.arange(most, device=tensor.device) < tensor.shape[dim]


def length_of(tensor: Tensor, most: Any, dim: int) -> Tensor:
    """The size of a tensor plus 1, as in :class:`Rows`: int64, shape (1,)."""
    return torch.full((1,), tensor.shape[dim] + 1, dtype=torch.int64)


def _pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """``torch.nn.utils.rnn.pad_sequence``."""
    values, sizes = sections(sequences, 0)
    longest = sizes.max().item()
    torch._check(longest >= 0)
    places = torch.arange(longest) - (longest - sizes[:, None] if padding_side == "left" else 0)
    starts = sizes.cumsum(0) - sizes
    present = (places >= 0) & (places < sizes[:, None])
    found = values[torch.where(present, places + starts[:, None], 0)]
    padding = values.new_full((), padding_value)
    padded = torch.where(present[(..., *[None] * (values.dim() - 1))], found, padding)
    return padded if batch_first else padded.transpose(0, 1)


JOINS["pad_sequence"] = _pad_sequence
