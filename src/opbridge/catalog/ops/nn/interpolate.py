"""Interpolation by a factor that is computed from dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite

_CUBIC = -0.75
"""The parameter of cubic convolution in PyTorch (aten/native/UpSample.h)."""
_NEAREST = ("nearest", "nearest-exact")
_MODES = ("linear", "bilinear", "trilinear", "bicubic", *_NEAREST)


@rewrite("torch.nn.functional.interpolate")
def interpolate(
    original: Callable[..., Tensor],
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Of each new element a weighted sum of its neighbors, or the nearest, along one axis after the other.

    Torch's operators have numbers as factors, so that a capture makes them constant. DINO's position embeddings, for
    example, are resized by a factor ``(w // 14 + 0.1) / 37``.
    """
    factors = scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor] * (input.dim() - 2)
    is_dynamic = any(isinstance(factor, torch.SymFloat) for factor in factors)
    if not is_dynamic or antialias or mode not in _MODES or not (input.is_floating_point() or mode in _NEAREST):
        return NotImplemented
    if align_corners or recompute_scale_factor:  # The factors are only needed for the sizes.
        sizes = [torch.sym_int(number * factor) for number, factor in zip(input.shape[2:], factors, strict=True)]
        return original(input, sizes, None, mode, align_corners)
    for axis, factor in enumerate(factors, start=2):
        if mode in _NEAREST:
            input = _nearest(input, axis, factor, is_exact=mode == "nearest-exact")
        else:
            input = _resized(input, axis, factor, is_cubic=mode == "bicubic")
    return input


def _step(factor: Any, dtype: torch.dtype) -> Tensor:
    """The distance of two new elements in the old ones. As in PyTorch, it is computed in float64."""
    return torch.reciprocal(torch.scalar_tensor(factor, dtype=torch.float64)).to(dtype)


def _nearest(x: Tensor, axis: int, factor: Any, *, is_exact: bool) -> Tensor:
    size = x.shape[axis]
    count = torch.sym_int(size * factor)
    step = _step(factor, torch.float32)  # Also for float64.
    if x.dim() == 4 and not is_exact:  # PyTorch treats these sizes of images apart.
        for times in (1, 2):
            is_multiple = torch.scalar_tensor(count, dtype=torch.int64) == times * size
            step = torch.where(is_multiple, 1 / times, step)
    places = (torch.arange(count, dtype=torch.float32) + (0.5 if is_exact else 0.0)) * step
    return x.index_select(axis, places.floor().to(torch.int64).clamp(max=size - 1))


def _resized(x: Tensor, axis: int, factor: Any, *, is_cubic: bool) -> Tensor:
    size = x.shape[axis]
    count = torch.sym_int(size * factor)
    working = x.dtype if x.dtype == torch.float64 else torch.float32
    counted = torch.arange(count, dtype=working)
    places = (counted + 0.5) * _step(factor, working) - 0.5
    if not is_cubic:  # PyTorch copies the elements of an axis whose size does not change.
        keeps_size = torch.scalar_tensor(count, dtype=torch.int64) == torch.scalar_tensor(size, dtype=torch.int64)
        places = torch.where(keeps_size, counted, places.clamp_min(0))
    first = places.floor()
    weights = _cubic_weights(places - first) if is_cubic else [1 - (places - first), places - first]
    whole, tail = first.to(torch.int64), [1] * (x.dim() - 1 - axis)
    total = x.new_zeros(())
    for weight, shift in zip(weights, range(-1, 3) if is_cubic else range(2), strict=True):
        taken = x.index_select(axis, (whole + shift).clamp(0, size - 1))
        total = total + taken * weight.to(x.dtype).reshape([count, *tail])
    return total


def _cubic_weights(share: Tensor) -> Sequence[Tensor]:
    """The weights of four neighbors for a place at ``share`` between the second and the third.

    R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """

    def near(distance: Tensor) -> Tensor:
        return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1

    def far(distance: Tensor) -> Tensor:
        return ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC

    return far(share + 1), near(share), near(1 - share), far(2 - share)
