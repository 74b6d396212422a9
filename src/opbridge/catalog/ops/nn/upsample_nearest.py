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
    if scale_factors is None:
        return _of_size(input, output_size or ())
    if all(map(_takes_the_same_pixels, input.shape[2:], scale_factors)):
        return NotImplemented
    return _resized(input, scale_factors, 0.0)


def _of_size(images: Tensor, wanted: Sequence[Any]) -> Any:
    sizes = images.shape[2:]
    if all(map(_takes_the_same_pixels_of_size, sizes, wanted)):
        return NotImplemented
    for axis, (size, count) in enumerate(zip(sizes, wanted, strict=True), start=2):
        if not (isinstance(size, int) and isinstance(count, int) and size == count):
            source = (torch.arange(count, dtype=_places(images)) * (size / count)).to(torch.int64)
            images = images.index_select(axis, source.clamp_max(size - 1))
    return images


def _takes_the_same_pixels_of_size(size: Any, count: Any) -> bool:
    """Whether a quotient by count / size and a product with size / count, both rounded, have the same integer part.

    They may differ where they are integers: 24 pixels of 21, or 2 of 14. Dynamic sizes are not compared.
    """
    if not isinstance(size, int) or not isinstance(count, int) or not size:
        return True
    counted = np.arange(count, dtype=np.float32)
    product = np.floor(counted * np.float32(size / count))
    return np.array_equal(product, np.floor(counted / np.float32(count / size)))


def _takes_the_same_pixels(size: Any, factor: float) -> bool:
    """Whether a quotient by the factor and a product with its inverse round down to the same integers.

    They do for integers and powers of 2; for other factors the pixels of a fixed size are compared.
    """
    if float(factor).is_integer() or math.frexp(factor)[0] == 0.5:
        return True
    if not isinstance(size, int):
        return False
    single, counted = np.float32(factor), np.arange(int(size * factor), dtype=np.float32)
    product, quotient = np.floor(counted * np.float32(1 / factor)), np.floor(counted / single)
    return bool(np.array_equal(product, quotient)) and int(np.float32(size) * single) == len(counted)


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
    for axis, factor in enumerate(factors, start=2):
        size = images.shape[axis]
        count = torch.sym_int(size * factor)
        if images.dim() == 4 and not centre and isinstance(size, int) and count == size:
            continue  # PyTorch's kernel for two dimensions copies the pixels if their number does not change.
        counted = torch.arange(count, dtype=_places(images))
        source = ((counted + centre) * (1.0 / factor)).to(torch.int64)
        images = images.index_select(axis, source.clamp_max(size - 1))
    return images


def _places(images: Tensor) -> torch.dtype:
    """The type in which PyTorch computes the positions of pixels."""
    return torch.float64 if images.dtype == torch.float64 else torch.float32
