"""Nearest-neighbor interpolation where ONNX's Resize does not take the same pixels, or torch does not map to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping divides by the factor, PyTorch multiplies by its inverse: they differ at integer positions"
_UPSAMPLE = {
    3: torch.ops.aten.upsample_nearest1d.vec,
    4: torch.ops.aten.upsample_nearest2d.vec,
    5: torch.ops.aten.upsample_nearest3d.vec,
}


@decomposition("aten::upsample_nearest1d.vec", overrides=_WHY)
@decomposition("aten::upsample_nearest2d.vec", overrides=_WHY)
@decomposition("aten::upsample_nearest3d.vec", overrides=_WHY)
def upsample_nearest(input: Tensor, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None) -> Tensor:
    """The pixel at ``floor(i / factor)``, computed as a floating-point product with the inverse, as PyTorch does.

    upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor

    Factors and fixed sizes with which ONNX's Resize takes the same pixels are left to it, and all dynamic output sizes.
    """
    sizes = input.shape[2:]
    if scale_factors is None:
        counts = output_size or ()
        if all(map(_takes_the_same_pixels_of_size, sizes, counts)):
            return NotImplemented
        return _picked(input, counts, [size / count for size, count in zip(sizes, counts, strict=True)], 0.0)
    if all(map(_takes_the_same_pixels, sizes, scale_factors)):
        return NotImplemented
    return _resized(input, scale_factors, 0.0)


def _takes_the_same_pixels(size: Any, factor: float) -> bool:
    """Whether Resize takes the same pixels: for integers and powers of 2; for other factors, those of a fixed size."""
    if float(factor).is_integer() or math.frexp(factor)[0] == 0.5:
        return True
    if not isinstance(size, int):
        return False
    count = int(size * factor)
    return int(np.float32(size) * np.float32(factor)) == count and _rounds_down_alike(count, 1 / factor, factor)


def _takes_the_same_pixels_of_size(size: Any, count: Any) -> bool:
    """Whether Resize takes the same pixels for an output size, 24 of 21 or 2 of 14; dynamic ones are not compared."""
    are_fixed = isinstance(size, int) and isinstance(count, int) and size and count
    return not are_fixed or _rounds_down_alike(count, size / count, count / size)


def _rounds_down_alike(count: int, inverse: float, factor: float) -> bool:
    """Whether products with the inverse, as in PyTorch, and quotients, as in Resize, have the same integer parts."""
    counted = np.arange(count, dtype=np.float32)
    product, quotient = np.floor(counted * np.float32(inverse)), np.floor(counted / np.float32(factor))
    return np.array_equal(product, quotient)


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

    For integer factors it is the pixel at ``floor(i / factor)``.
    """
    if _are_multiples(input.shape[2:], output_size, scale_factors):
        return _UPSAMPLE[input.dim()](input, output_size, scale_factors)  # type: ignore[no-any-return]
    return _resized(input, scale_factors, 0.5)


def _are_multiples(sizes: Sequence[Any], wanted: Sequence[Any] | None, factors: Sequence[float] | None) -> bool:
    if factors is not None:
        return all(float(factor).is_integer() for factor in factors)
    are_fixed = all(isinstance(size, int) for size in (*sizes, *(wanted or ())))
    return bool(wanted) and are_fixed and all(new % size == 0 for size, new in zip(sizes, wanted or (), strict=True))


def _resized(images: Tensor, factors: Sequence[float] | None, centre: float) -> Any:
    if factors is None:
        return NotImplemented
    counts = [torch.sym_int(size * factor) for size, factor in zip(images.shape[2:], factors, strict=True)]
    return _picked(images, counts, [1.0 / factor for factor in factors], centre)


def _picked(images: Tensor, counts: Sequence[Any], steps: Sequence[Any], centre: float) -> Tensor:
    """So many pixels of each axis, at multiples of a step; ``centre`` is added to the number of each."""
    places = torch.float64 if images.dtype == torch.float64 else torch.float32
    for axis, (count, step) in enumerate(zip(counts, steps, strict=True), start=2):
        size = images.shape[axis]
        is_kept = isinstance(size, int) and isinstance(count, int) and size == count
        if is_kept and not centre and (images.dim() == 4 or step == 1):
            continue  # PyTorch's kernel for two dimensions copies the pixels if their number does not change.
        source = ((torch.arange(count, dtype=places) + centre) * step).to(torch.int64)
        images = images.index_select(axis, source.clamp_max(size - 1))
    return images
