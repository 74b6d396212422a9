"""Reductions of segments of an axis."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_KINDS = {
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "sum": ("sum", 0),
    "mean": ("sum", 0),
    "prod": ("prod", 1),
}


@decomposition("aten::segment_reduce")
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """The reduction of each segment along ``axis``, starting with ``initial``; the mean of an empty segment is NaN.

    segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None,
    int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor

    The axes before ``axis`` are batch axes: each row has its own segments, the same number in every row.
    """
    if lengths is None:
        assert offsets is not None
        ends, lengths = offsets[..., 1:], torch.diff(offsets, dim=-1)
    else:
        ends = torch.cumsum(lengths, -1)
    axis = axis % data.dim()
    batch, count = lengths.shape[:-1], lengths.shape[-1]
    positions = torch.arange(data.shape[axis]).expand(*batch, data.shape[axis])
    segments = torch.searchsorted(ends.to(torch.int64), positions, right=True)
    inner = [1] * (data.dim() - axis - 1)
    places = segments.reshape(*segments.shape, *inner).expand(data.shape)
    kind, neutral = _KINDS[reduce]
    # One additional segment for elements after the last segment.
    shape = [*batch, count + 1, *data.shape[axis + 1 :]]
    start = torch.full(shape, neutral if initial is None else initial, dtype=data.dtype)
    result = torch.scatter_reduce(start, axis, places, data, kind, include_self=True).narrow(axis, 0, count)
    if reduce != "mean":
        return result
    sizes = lengths.reshape(*lengths.shape, *inner).to(data.dtype)
    of_nothing = math.nan if initial is None else initial
    return torch.where(sizes > 0, result / sizes.clamp_min(1), of_nothing)
