"""Distances between all pairs of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.torch_graph.internals import symbols_of

_WIDE = 32
"""From this number of columns on, a matrix product is preferred, because the differences take too much memory."""

_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def _is_static(size: Any) -> bool:
    return isinstance(size, int)


def _by_product(x1: Tensor, x2: Tensor) -> Tensor:
    """Euclidean distances by (a - b)² = a² - 2ab + b², which loses digits if a and b are close."""
    squares1 = (x1 * x1).sum(-1, keepdim=True)
    squares2 = (x2 * x2).sum(-1, keepdim=True)
    left = torch.cat([-2 * x1, squares1, torch.ones_like(squares1)], -1)
    right = torch.cat([x2, torch.ones_like(squares2), squares2], -1)
    return (left @ right.mT).clamp_min(0).sqrt()


def _takes_product(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> bool:
    if p != 2 or compute_mode == 2 or not _is_static(x1.shape[-1]) or x1.shape[-1] < _WIDE:
        return False
    rows = (x1.shape[-2], x2.shape[-2])
    return compute_mode == 1 or any(not _is_static(size) or size > 25 for size in rows)


@decomposition("aten::_cdist_forward")
def cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """The p-norms (.., P, R) of the differences of all rows of ``x1`` (.., P, M) and all rows of ``x2`` (.., R, M).

    _cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor

    The differences are computed explicitly, so that close rows do not lose digits. A matrix product is used only if
    torch uses one too (by ``compute_mode``, or for more than 25 rows) and the rows are wide: the differences would need
    P x R x M numbers.
    """
    if _takes_product(x1, x2, p, compute_mode):
        return _by_product(x1, x2)
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p == 2 and x1.shape[-1] != 0:
        return (difference * difference).sum(-1).sqrt()
    difference = difference.abs()
    if p == 0:
        return (difference != 0).to(x1.dtype).sum(-1)
    if p == 1 or x1.shape[-1] == 0:
        return difference.sum(-1)
    if math.isinf(p):
        # torch ignores NaN here, and engines differ in their maximum of NaN.
        return torch.where(difference.isnan(), 0, difference).amax(-1)
    return difference.pow(p).sum(-1).pow(1 / p)


@decomposition("aten::_euclidean_dist", overrides="torch's mapping loses all digits between close rows")
def euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor:
    """The operator that ``aten::cdist`` becomes in its matrix product mode; narrow rows use the differences.

    _euclidean_dist(Tensor x1, Tensor x2) -> Tensor
    """
    return cdist_forward(x1, x2, 2.0, 1)


@rewrite("torch.cdist")
def cdist(
    original: Callable[..., Tensor],
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """Distances that keep a dynamic number of rows dynamic; torch's default mode branches on whether it is above 25.

    cdist(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor
    """
    is_open = compute_mode == "use_mm_for_euclid_dist_if_necessary"
    if is_open and not (_is_static(x1.shape[-2]) and _is_static(x2.shape[-2])):
        wide = _is_static(x1.shape[-1]) and x1.shape[-1] >= _WIDE
        compute_mode = "use_mm_for_euclid_dist" if wide else "donot_use_mm_for_euclid_dist"
    if symbols_of([x1, x2]):  # torch's operator asks whether there are any elements.
        return cdist_forward(x1, x2, p, _MODES.index(compute_mode))
    return original(x1, x2, p=p, compute_mode=compute_mode)
