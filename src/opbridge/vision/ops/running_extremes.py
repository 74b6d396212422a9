"""The largest or smallest element so far, and where it is."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    return [
        Sample((torch.randn(2, 5, 3, generator=generator), 1, True), name="largest"),
        # Some elements are equal.
        Sample((torch.randint(4, (3, 7), generator=generator).float(), -1, False), name="smallest, last axis"),
    ]


@operator("opbridge_vision::running_extremes", samples=_samples)
def running_extremes(input: Tensor, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    """``torch.cummax`` or ``torch.cummin`` as one node: the values and their positions, int64.

    Of equal elements, the position is that of the latest.

    Args:
        input: The elements, of any sizes but at least one axis.
        dim: The axis along which the elements follow each other.
        largest: Whether the largest elements are returned, not the smallest.
    """
    values, places = input.cummax(dim) if largest else input.cummin(dim)
    return values, places


@running_extremes.set_body
def _body(input: Tensor, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    axis = dim % input.dim()
    length = input.shape[axis]
    places = torch.arange(length)
    column = places.reshape([-1 if k == axis else 1 for k in range(input.dim())])

    def go_on(reach: Tensor, best: Tensor, where: Tensor) -> Tensor:
        return reach < length

    def double(reach: Tensor, best: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = (places - reach).clamp(min=0)
        other, other_where = best.index_select(axis, before), where.index_select(axis, before)
        # Also true for NaN, which is the extreme of what follows.
        is_better = (other > best if largest else other < best) | ((other != other) & (best == best))
        return 2 * reach, torch.where(is_better, other, best), torch.where(is_better, other_where, where)

    # Each element is the best of as many as ``reach``.
    start = torch.ones((), dtype=torch.int64)
    _, best, where = torch.while_loop(go_on, double, (start, input, column.expand(input.shape).clone()))
    return best, where


running_extremes.kernel("running_extremes.h")
