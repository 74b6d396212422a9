"""Resizing of images of bytes without antialiasing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for
from opbridge.catalog.formulas.resizing import output_step, resize_bytes

_WHY = "PyTorch resizes bytes with fixed-point weights, and engines have no such kernel"


@decomposition("aten::upsample_bilinear2d.vec", overrides=_WHY)
@only_for(torch.uint8)
def upsample_bilinear2d(
    input: Tensor, output_size: Sequence[Any] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Tensor:
    """Linear interpolation of bytes.

    upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
    """
    return _resized(input, output_size, align_corners, scale_factors, _linear)


@decomposition("aten::upsample_bicubic2d.vec", overrides=_WHY)
@only_for(torch.uint8)
def upsample_bicubic2d(
    input: Tensor, output_size: Sequence[Any] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> Tensor:
    """Cubic interpolation of bytes.

    upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
    """
    return _resized(input, output_size, align_corners, scale_factors, _cubic)


def _resized(
    image: Tensor,
    sizes: Sequence[Any] | None,
    align_corners: bool,
    factors: Sequence[float] | None,
    weights: Callable[[Any, Any, Any, bool], Tensor],
) -> Tensor:
    haves = image.shape[-2:]
    wants = sizes or [torch.sym_int(have * factor) for have, factor in zip(haves, factors or (), strict=True)]
    rows, columns = (
        weights(have, want, output_step(have, want, align_corners, factor), align_corners)
        for have, want, factor in zip(haves, wants, factors or (None, None), strict=True)
    )
    return resize_bytes(image, rows, columns)  # type: ignore[no-any-return]


def _places(want: Any, step: Any, align_corners: bool) -> Tensor:
    """The place in the input of each element of the output: (want, 1), float64."""
    outputs = torch.arange(want, dtype=torch.float64).unsqueeze(-1)
    return outputs * step if align_corners else (outputs + 0.5) * step - 0.5


def _linear(have: Any, want: Any, step: Any, align_corners: bool) -> Tensor:
    """The weights of two neighbors; a place outside of the image is moved to its border."""
    places = _places(want, step, align_corners).clamp(0, have - 1)
    return (1 - (torch.arange(have, dtype=torch.float64) - places).abs()).clamp_min(0)


def _cubic(have: Any, want: Any, step: Any, align_corners: bool) -> Tensor:
    """Keys' kernel with a = -0.75 on four neighbors, where the border's elements continue outside of the image."""
    places = _places(want, step, align_corners)
    neighbors = torch.floor(places) + torch.arange(-1, 3, dtype=torch.float64)
    distance = (neighbors - places).abs()
    near = (1.25 * distance - 2.25) * distance * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    weights = torch.where(distance <= 1, near, far)
    elements = torch.arange(have, dtype=torch.float64)
    is_at = neighbors.clamp(0, have - 1).unsqueeze(-1) == elements
    return torch.where(is_at, weights.unsqueeze(-1), 0.0).sum(-2)
