"""Quantization in elementary operators, for forms that an older opset's quantization operators do not support."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.dynamic_shapes import unsqueeze
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site, normalized

__all__ = ["dequantize", "is_per_tensor", "quantize", "zero_like"]


def is_per_tensor(scale: ir.Value | None) -> bool:
    """Whether the quantization is per tensor."""
    return scale is not None and scale.shape is not None and (len(scale.shape) == 0 or list(scale.shape) == [1])


def dequantize(site: Site, dtype: ir.DataType) -> ir.Value:
    """The node's result in ``dtype``: (x - zero point) * scale."""
    op, data, scale, zero = site.op, site.input(0), site.input(1), site.input(2)
    # The difference of two 32-bit integers is exact in float64.
    wide = ir.DataType.DOUBLE if site.dtype(data).bitwidth > 16 else ir.DataType.FLOAT
    value = op.cast(data, wide)
    if zero is not None:
        value = op.Sub(value, _spread(site, op.cast(zero, wide)))
    product = op.Mul(op.cast(value, ir.DataType.FLOAT), op.cast(_spread(site, scale), ir.DataType.FLOAT))
    result: ir.Value = op.cast(product, dtype)
    return result


def quantize(site: Site, dtype: ir.DataType, precision: ir.DataType) -> ir.Value:
    """The node's result in the integer type ``dtype``: round(x / scale) + zero point, within the type's range."""
    if not dtype.is_integer() or dtype.bitwidth > 16:
        raise CannotExpress(f"quantization to {dtype.name.lower()}")
    op, data, scale, zero = site.op, site.input(0), site.input(1), site.input(2)
    quotient = op.Div(op.cast(data, precision), op.cast(_spread(site, scale), precision))
    rounded = op.cast(op.Round(quotient), ir.DataType.FLOAT)
    if zero is not None:
        rounded = op.Add(rounded, op.cast(_spread(site, zero), ir.DataType.FLOAT))
    low, high = (op.constant(np.array(bound, dtype=np.float32)) for bound in (dtype.min, dtype.max))
    result: ir.Value = op.cast(op.Min(op.Max(rounded, low), high), dtype)
    return result


def _spread(site: Site, scale: ir.Value | None) -> ir.Value | None:
    """A scale or zero point in a shape that broadcasts with the input."""
    if scale is None or is_per_tensor(scale):
        return scale
    rank = site.rank(site.input(0), "neither is the axis of its scales")
    if site.rank(scale) == rank and rank > 1:
        return _blocked(site, scale, rank)
    (axis,) = normalized([site.attribute("axis")], rank)
    return unsqueeze(site.op, scale, [place for place in range(rank) if place != axis])


def _blocked(site: Site, scale: ir.Value, rank: int) -> ir.Value:
    """Repeat each scale for its block."""
    op, size = site.op, site.attribute("block_size")
    (axis,) = normalized([site.attribute("axis")], rank)
    if not size:
        raise CannotExpress("its scales have the input's rank, but it has no block_size")
    repeats = [1] * (rank + 1)
    repeats[axis + 1] = size
    tiled = op.Tile(unsqueeze(op, scale, [axis + 1]), op.constant(np.array(repeats)))
    shape = op.Shape(scale)
    start, end, last = (op.constant(np.array([n])) for n in (0, axis, rank))
    after, every = op.constant(np.array([axis + 1])), op.constant(np.array([-1]))
    merged = op.Concat(op.Slice(shape, start, end), every, op.Slice(shape, after, last), axis=0)
    # The last block may be incomplete.
    wanted = op.Slice(op.Shape(site.input(0)), end, after)
    cut: ir.Value = op.Slice(op.Reshape(tiled, merged), start, wanted, end)
    return cut


def zero_like(op: Builder, scale: ir.Value, dtype: ir.DataType) -> ir.Value:
    """A zero point of the scale's shape."""
    zeros = op.ConstantOfShape(op.Shape(scale), value=ir.tensor(np.zeros(1, dtype=np.int32)))
    result: ir.Value = op.cast(zeros, dtype)
    return result
