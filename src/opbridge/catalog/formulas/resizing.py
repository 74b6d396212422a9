"""Resizing of images as products with matrices of weights, one for each of the last two axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["bytes_by_products", "output_step", "resize_bytes"]


def output_step(have: Any, want: Any, align_corners: bool, scale: float | None) -> Any:
    """The distance between two output elements, in input elements."""
    if align_corners:
        return (have - 1) / (want - 1) if want > 1 else 0.0
    return 1 / scale if scale else have / want


@torch.library.custom_op("opbridge::resize_bytes", mutates_args=())
def resize_bytes(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """A resized image of bytes, exactly as PyTorch's CPU kernels compute it.

    They multiply with fixed-point weights, first along the rows and then along the columns, rounding to bytes each time
    (ATen/native/cpu/UpSampleKernel.cpp, separable_upsample_generic_Nd_kernel_impl).

    Args:
        image: (..., height, width), uint8.
        rows: The weights of the input's rows for each row of the output: (new height, height), float64.
        columns: The weights of the input's columns for each column of the output: (new width, width), float64.

    Returns:
        (..., new height, new width), uint8.
    """
    return bytes_by_products(image, rows, columns)


@resize_bytes.register_fake
def _shape(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return image.new_empty(*image.shape[:-2], rows.shape[0], columns.shape[0])


def bytes_by_products(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The result of :func:`resize_bytes` as matrix products, which are exact in float64."""
    widened = _bytes(image.to(torch.float64) @ _fixed_point(columns).mT)
    return _bytes(_fixed_point(rows) @ widened).to(torch.uint8)


def _fixed_point(weights: Tensor) -> Tensor:
    """The weights, rounded to as many binary places, at most 22, as let the largest fit in 16 bits."""
    units = 2.0 ** torch.arange(1, 23, dtype=torch.float64)
    places = (torch.floor(weights.max() * units + 0.5) < 2**15).to(torch.float64).sum()
    scaled = weights * 2.0**places
    return torch.trunc(scaled + torch.where(scaled < 0, -0.5, 0.5)) / 2.0**places


def _bytes(values: Tensor) -> Tensor:
    return torch.floor(values + 0.5).clamp(0, 255)
