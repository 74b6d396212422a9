"""Nearest-neighbor interpolation where ONNX's Resize does not take the same pixels, or torch does not map to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnxscript import opset18 as op
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import decomposition, translation

_WHY = "torch's mapping divides by the factor, PyTorch multiplies by its inverse: they differ at integer positions"
_RESIZE = {
    3: torch.ops.aten.upsample_nearest1d.default,
    4: torch.ops.aten.upsample_nearest2d.default,
    5: torch.ops.aten.upsample_nearest3d.default,
}
"""The overloads that have no mapping here, and become a Resize: the pixel at the quotient ``i / factor``."""
_EXACT = {
    3: torch.ops.aten._upsample_nearest_exact1d.default,
    4: torch.ops.aten._upsample_nearest_exact2d.default,
    5: torch.ops.aten._upsample_nearest_exact3d.default,
}


@decomposition("aten::upsample_nearest1d.vec", overrides=_WHY)
@decomposition("aten::upsample_nearest2d.vec", overrides=_WHY)
@decomposition("aten::upsample_nearest3d.vec", overrides=_WHY)
def upsample_nearest(input: Tensor, output_size: Sequence[Any] | None, scale_factors: Sequence[float] | None) -> Tensor:
    """The pixel at ``floor(i / factor)``, computed as a floating-point product with the inverse, as PyTorch does.

    upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
    upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor

    Factors and sizes with which ONNX's Resize takes the same pixels are left to it. If that depends on a dynamic size,
    the model compares the positions at run time, because selecting the pixels can take ten times as long as Resize.
    """
    dtype = _step_type(input)
    if scale_factors is not None:
        factors = zip(input.shape[2:], scale_factors, strict=True)
        if all(_takes_the_same_pixels(size, factor, dtype) for size, factor in factors):
            return NotImplemented
        return _selected_by_factor(input, scale_factors, 0.0)
    axes = list(zip(input.shape[2:], output_size or (), strict=True))
    same = [_takes_the_same_pixels_of_size(size, count, dtype) for size, count in axes]
    if all(same):
        return NotImplemented
    if False in same or dtype == torch.float64:  # Engines have no Resize for float64.
        return _selected_by_size(input, output_size or (), 0.0)
    truth = _same_positions([axis for axis, is_same in zip(axes, same, strict=True) if not is_same], dtype)
    wanted = list(output_size or ())
    # torch takes no size twice.
    dynamic_sizes = {size.node.expr: size for size in wanted if not isinstance(size, int)}

    def sizes(dynamic: Sequence[Any]) -> list[Any]:
        given = dict(zip(dynamic_sizes, dynamic, strict=True))
        return [size if isinstance(size, int) else given[size.node.expr] for size in wanted]

    # torch can't name the inputs of a branch if a number is among them, and torch 2.13 can't compare the strides of two
    # branches if a size may be 0.
    results = torch.ops.higher_order.cond(
        truth,
        lambda images, *dynamic: (_RESIZE[images.dim()](images, sizes(dynamic)).flatten(),),
        lambda images, *dynamic: (_selected_by_size(images, sizes(dynamic), 0.0).flatten(),),
        (input, *dynamic_sizes.values()),
    )
    return results[0].reshape([*input.shape[:2], *wanted])  # type: ignore[no-any-return]


def _step_type(images: Tensor) -> torch.dtype:
    """The type in which PyTorch multiplies the position of a pixel by the inverse of the factor."""
    return torch.float64 if images.dtype == torch.float64 else torch.float32


def _takes_the_same_pixels(size: Any, factor: float, dtype: torch.dtype) -> bool:
    """Whether Resize takes the same pixels: for powers of 2, most integers, and other factors of some fixed sizes.

    A product with the inverse of 41, 47 and others, which is rounded down too far, can be below the whole number.
    """
    if math.frexp(factor)[0] == 0.5:
        return True
    if float(factor).is_integer() and float(np.float32(1 / factor)) * factor >= 1 - 2**-25:
        return True
    if not isinstance(size, int):
        return False
    count = int(size * factor)
    is_same_size = int(np.float32(size) * np.float32(factor)) == count
    return is_same_size and _rounds_down_alike(count, 1 / factor, factor, dtype)


def _takes_the_same_pixels_of_size(size: Any, count: Any, dtype: torch.dtype) -> bool | None:
    """Whether Resize takes the same pixels, as not for 24 of 21 or 2 of 14; None if it depends on a dynamic size."""
    if isinstance(size, int) and isinstance(count, int):
        return not size or not count or _rounds_down_alike(count, size / count, count / size, dtype)
    powers = [2**exponent for exponent in range(7)]
    equal = [(size, 1), *((size * power, count) for power in powers), *((count * power, size) for power in powers)]
    return any(statically_known_true(one == other) for one, other in equal) or None


def _rounds_down_alike(count: int, inverse: float, factor: float, dtype: torch.dtype) -> bool:
    """Whether products with the inverse, as in PyTorch, and quotients, as in Resize, have the same integer parts."""
    counted = np.arange(count, dtype=str(dtype).rpartition(".")[2])
    products, quotients = counted * counted.dtype.type(inverse), counted.astype(np.float32) / np.float32(factor)
    return np.array_equal(np.floor(products.astype(np.float32)), np.floor(quotients))


def _same_positions(axes: Sequence[tuple[Any, Any]], dtype: torch.dtype) -> Tensor:
    """The same at run time, along some axes with these sizes of the input and of the output.

    An engine's Resize of the numbers 0, 1, 2, ... shows which pixels it takes.
    """
    taken = [_RESIZE[3](torch.arange(size, dtype=torch.float32)[None, None], [count]).flatten() for size, count in axes]
    wanted = [_positions(count, _step(size, count, dtype), dtype) for size, count in axes]
    return (torch.cat(taken).to(torch.int64) == torch.cat(wanted).to(torch.int64)).all()


def _step(size: Any, count: Any, dtype: torch.dtype) -> Any:
    """``size / count``, correctly rounded; OpenVINO multiplies by an inverse instead of dividing, but not in a mean."""
    if dtype == torch.float64 or (isinstance(size, int) and isinstance(count, int)):
        return size / count
    return ((torch.arange(count) == 0).to(dtype) * size).mean()


def _positions(count: Any, step: Any, dtype: torch.dtype, centre: float = 0.0) -> Tensor:
    """Where PyTorch reads: it rounds a position to float32, whatever the type of the product."""
    places = torch.arange(count, dtype=dtype)
    return ((places + centre if centre else places) * step).to(torch.float32)


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

    For integer factors it is the pixel at the quotient ``i / factor``. Other fixed sizes are left to ONNX's Resize,
    unless rounding decides about a pixel.
    """
    sizes, has_resize = input.shape[2:], input.dtype != torch.float64
    if scale_factors is not None:
        counts = _counts(sizes, scale_factors)
        if has_resize and all(float(factor).is_integer() for factor in scale_factors):
            return _RESIZE[input.dim()](input, counts, *scale_factors)  # type: ignore[no-any-return]
        scales = [_scale(*axis) for axis in zip(sizes, counts, scale_factors, strict=True)]
        if has_resize and None not in scales:
            return _EXACT[input.dim()](input, counts, *scales)  # type: ignore[no-any-return]
        return _selected_by_factor(input, scale_factors, 0.5)
    counts = list(output_size or ())
    if has_resize and all(isinstance(size, int) for size in (*sizes, *counts)):
        if not any(count % size for size, count in zip(sizes, counts, strict=True)):
            return _RESIZE[input.dim()](input, counts)  # type: ignore[no-any-return]
        if all(
            _takes_the_nearest(size, count, size / count, count / size)
            for size, count in zip(sizes, counts, strict=True)
        ):
            return _EXACT[input.dim()](input, counts)  # type: ignore[no-any-return]
    return _selected_by_size(input, counts, 0.5)


def _scale(size: Any, count: Any, factor: float) -> float | None:
    """A scale near the factor with which Resize takes the same pixels of a fixed size, or None.

    Where a center lies on the edge between two pixels, PyTorch's rounding decides. A scale that is a little larger or
    smaller decides in the same way, and leaves nothing to the engine's rounding.
    """
    scales = (factor, factor * (1 + 1e-5), factor * (1 - 1e-5)) if isinstance(size, int) else ()
    return next((scale for scale in scales if _takes_the_nearest(size, count, 1 / factor, scale)), None)


def _takes_the_nearest(size: int, count: int, step: float, scale: float) -> bool:
    """Whether Resize with this scale takes PyTorch's pixels, with some distance from the edges between pixels."""
    places = np.arange(count) + 0.5
    wanted = np.minimum(np.floor(places.astype(np.float32) * np.float32(step)), size - 1)
    inside, margin = places / scale - wanted, 1e-6 * places / scale
    is_far = (inside > margin) & ((inside < 1 - margin) | (wanted == size - 1))
    return abs(size * scale - count - 0.5) < 0.5 + 1e-9 and bool(is_far.all())


@translation("aten::_upsample_nearest_exact1d.default")
@translation("aten::_upsample_nearest_exact2d.default")
@translation("aten::_upsample_nearest_exact3d.default")
def resized_to_nearest(self: Any, output_size: Sequence[int], *scales: float | None) -> Any:
    """The same as ONNX's Resize.

    _upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor
    _upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor
    _upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None,
    float? scales_w=None) -> Tensor
    """
    nearest = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_ceil",
        "axes": list(range(2, len(self.shape))),
    }
    if any(scales):
        return op.Resize(self, None, op.Constant(value_floats=scales), **nearest)
    return op.Resize(self, None, None, op.Constant(value_ints=output_size), **nearest)


def _counts(sizes: Sequence[Any], factors: Sequence[float]) -> list[Any]:
    """The sizes of the output; products with integers are computed in integers, because engines lack float64."""
    return [
        size * int(factor) if float(factor).is_integer() else torch.sym_int(size * factor)
        for size, factor in zip(sizes, factors, strict=True)
    ]


def _selected_by_factor(images: Tensor, factors: Sequence[float], centre: float) -> Tensor:
    return _selected(images, _counts(images.shape[2:], factors), [1.0 / factor for factor in factors], centre)


def _selected_by_size(images: Tensor, counts: Sequence[Any], centre: float) -> Tensor:
    steps = [_step(size, count, _step_type(images)) for size, count in zip(images.shape[2:], counts, strict=True)]
    return _selected(images, counts, steps, centre)


def _selected(images: Tensor, counts: Sequence[Any], steps: Sequence[Any], centre: float) -> Tensor:
    """So many pixels of each axis, at multiples of a step; ``centre`` is added to the number of each."""
    axes = list(enumerate(zip(counts, steps, strict=True), start=2))
    grows = isinstance(steps[-1], float) and steps[-1] < 1  # Selecting along the last axis takes longest.
    for axis, (count, step) in reversed(axes) if grows else axes:
        size = images.shape[axis]
        is_kept = isinstance(size, int) and isinstance(count, int) and size == count
        if is_kept and not centre and (images.dim() == 4 or step == 1):
            continue  # PyTorch's kernel for two dimensions copies the pixels if their number does not change.
        source = _positions(count, step, _step_type(images), centre).to(torch.int64)
        images = images.index_select(axis, source.clamp_max(size - 1))
    return images
