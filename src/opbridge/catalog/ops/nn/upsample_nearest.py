"""Nearest-neighbor interpolation with scale factors that are not integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping divides by the factor, PyTorch multiplies by its inverse: they differ at integer positions"


@decomposition("aten::upsample_nearest1d.vec", overrides=_WHY)
@decomposition("aten::upsample_nearest2d.vec", overrides=_WHY)
@decomposition("aten::upsample_nearest3d.vec", overrides=_WHY)
def upsample_nearest(input: Tensor, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None) -> Tensor:
    """The pixel at ``floor(i / factor)``, computed as a floating-point product with the inverse, as PyTorch does.

    upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor

    Output sizes, integer factors and their inverses that are powers of 2 are left to ONNX's Resize.
    """
    if scale_factors is not None and all(_is_exact(float(factor)) for factor in scale_factors):
        return NotImplemented
    return _resized(input, scale_factors, 0.0)


def _is_exact(factor: float) -> bool:
    """Whether a quotient by the factor and a product with its inverse round down to the same integer."""
    return factor.is_integer() or math.frexp(factor)[0] == 0.5


@decomposition("aten::_upsample_nearest_exact1d.vec", overrides=_WHY)
@decomposition("aten::_upsample_nearest_exact2d.vec", overrides=_WHY)
@decomposition("aten::_upsample_nearest_exact3d.vec", overrides=_WHY)
def upsample_nearest_exact(
    input: Tensor, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None
) -> Tensor:
    """The pixel at ``floor((i + 0.5) / factor)``, which contains the center of the output pixel.

    _upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    _upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    _upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    """
    return _resized(input, scale_factors, 0.5)


def _resized(images: Tensor, factors: Sequence[float] | None, centre: float) -> Any:
    if factors is None or all(float(factor).is_integer() for factor in factors):
        return NotImplemented
    places = torch.float64 if images.dtype == torch.float64 else torch.float32
    for axis, factor in enumerate(factors, start=2):
        size = images.shape[axis]
        count = torch.sym_int(size * factor)
        if images.dim() == 4 and not centre and isinstance(size, int) and count == size:
            continue  # PyTorch's kernel for two dimensions copies the pixels if their number does not change.
        counted = torch.arange(count, dtype=places)
        source = ((counted + centre) * (1.0 / factor)).to(torch.int64)
        images = images.index_select(axis, source.clamp_max(size - 1))
    return images
