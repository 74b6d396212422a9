"""Resizing of images with antialiasing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for
from opbridge.catalog.formulas.resizing import output_step, resize_bytes

_WHY = "torch's mapping ignores the scales, and aligns corners differently"


@decomposition("aten::_upsample_bilinear2d_aa.default", overrides=_WHY)
@only_for(torch.float32, torch.float64, torch.uint8)
def upsample_bilinear2d_aa(
    self: Tensor,
    output_size: Sequence[Any],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """Linear interpolation with antialiasing, of bytes, in float64, or with scales that are not the ratio of the sizes.

    _upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None,
    float? scales_w=None) -> Tensor
    """
    return _resized(self, output_size, align_corners, (scales_h, scales_w), _linear)


@decomposition("aten::_upsample_bicubic2d_aa.default", overrides=_WHY)
@only_for(torch.float32, torch.float64, torch.uint8)
def upsample_bicubic2d_aa(
    self: Tensor,
    output_size: Sequence[Any],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """Cubic interpolation with antialiasing, of bytes, in float64, or with scales that are not the ratio of the sizes.

    _upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None,
    float? scales_w=None) -> Tensor
    """
    return _resized(self, output_size, align_corners, (scales_h, scales_w), _cubic)


@decomposition("aten::_upsample_lanczos2d_aa.default")
def upsample_lanczos2d_aa(
    self: Tensor,
    output_size: Sequence[Any],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """Interpolation with a windowed sinc filter and antialiasing.

    _upsample_lanczos2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None,
    float? scales_w=None) -> Tensor
    """
    return _products(self, output_size, align_corners, (scales_h, scales_w), _lanczos)


def _linear(distance: Tensor) -> Tensor:
    return (1 - distance).clamp_min(0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5 ("Cubic convolution interpolation for digital image processing", 1981)."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


def _lanczos(distance: Tensor) -> Tensor:
    """The Lanczos kernel of six elements (ATen/native/cpu/UpSampleKernel.cpp)."""
    return torch.where(distance < 3, torch.sinc(distance) * torch.sinc(distance / 3), 0.0)


def _resized(
    image: Tensor,
    sizes: Sequence[Any],
    align_corners: bool,
    scales: Sequence[float | None],
    kernel: Callable[[Tensor], Tensor],
) -> Any:
    """The product of matrices where Resize is not the same, or has no kernels in engines (in float64)."""
    by_sizes = all(_is_of_sizes(*axis) for axis in zip(image.shape[-2:], sizes, scales, strict=True))
    if by_sizes and not align_corners and image.dtype == torch.float32:
        return NotImplemented
    return _products(image, sizes, align_corners, scales, kernel)


def _products(
    image: Tensor,
    sizes: Sequence[Any],
    align_corners: bool,
    scales: Sequence[float | None],
    kernel: Callable[[Tensor], Tensor],
) -> Tensor:
    """One matrix product for each of the last two axes."""
    rows, columns = (
        _weights(have, want, output_step(have, want, align_corners, scale), kernel)
        for have, want, scale in zip(image.shape[-2:], sizes, scales, strict=True)
    )
    if image.dtype == torch.uint8:
        return resize_bytes(image, rows, columns)  # type: ignore[no-any-return]
    return rows.to(image.dtype) @ image @ columns.to(image.dtype).mT


def _is_of_sizes(have: Any, want: Any, scale: float | None) -> bool:
    """Whether a scale equals the ratio of the sizes."""
    return not scale or (isinstance(have, int) and isinstance(want, int) and have * scale == want)


def _weights(have: Any, want: Any, step: Any, kernel: Callable[[Tensor], Tensor]) -> Tensor:
    """The weights of the input elements for each output element: (want, have), with rows that sum to 1.

    PyTorch truncates the filter at whole elements, where it is already 0, and does not treat corners differently.
    """
    centers = (torch.arange(want, dtype=torch.float64) + 0.5) * step
    places = torch.arange(have, dtype=torch.float64) + 0.5
    width = torch.scalar_tensor(step, dtype=torch.float64).clamp_min(1)
    found = kernel((places - centers.unsqueeze(-1)).abs() / width)
    return found / found.sum(-1, keepdim=True)
