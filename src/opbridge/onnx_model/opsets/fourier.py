"""The discrete Fourier transform as products with matrices of cosines and sines, in operators of opset 11."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.dynamic_shapes import unsqueeze
from opbridge.onnx_model.opsets.result import CannotExpress

__all__ = ["transform"]


def transform(
    op: Builder,
    real: ir.Value,
    imaginary: ir.Value | None,
    length: ir.Value | None,
    *,
    inverse: bool = False,
    onesided: bool = False,
) -> ir.Value:
    """The transform over the last axis of (..., n) as (2, ..., m); an inverse one-sided transform is real.

    As in ONNX's DFT, y[k] = sum over n of x[n] exp(-2 pi i k n / N); the inverse has the other sign and a factor 1/N.

    Args:
        op: The builder of the nodes.
        real: The real part.
        imaginary: The imaginary part; None for zero.
        length: N, of shape (1,), to which the input is cropped or zero-padded; None for the input's length.
        inverse: Whether to compute the inverse transform.
        onesided: Whether to compute only the first half for a real input, or the inverse from that half.
    """
    if real.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16):
        raise CannotExpress(f"a Fourier transform of {real.dtype}")
    own = op.Slice(op.Shape(real), op.constant(np.array([-1])), op.constant(np.array([np.iinfo(np.int64).max])))
    if inverse and onesided:
        # By default the signal of a spectrum of m numbers has 2 (m - 1).
        number = length or op.Mul(op.Sub(own, op.constant(np.array([1]))), op.constant(np.array([2])))
        half = op.Add(op.Div(number, op.constant(np.array([2]))), op.constant(np.array([1])))
        real, imaginary = _fit(op, real, half), None if imaginary is None else _fit(op, imaginary, half)
        return _from_half(op, real, imaginary, number, half)
    number = own if length is None else length
    if length is not None:
        real, imaginary = _fit(op, real, number), None if imaginary is None else _fit(op, imaginary, number)
    rows = op.Add(op.Div(number, op.constant(np.array([2]))), op.constant(np.array([1]))) if onesided else number
    cosine, sine = _matrices(op, real, number, number, rows)
    if inverse:
        scale = op.cast(number, _dtype(real))
        cosine, sine = op.Div(cosine, scale), op.Neg(op.Div(sine, scale))
    first, second = op.MatMul(real, cosine), op.Neg(op.MatMul(real, sine))
    if imaginary is not None:
        first = op.Add(first, op.MatMul(imaginary, sine))
        second = op.Add(second, op.MatMul(imaginary, cosine))
    both: ir.Value = op.Concat(unsqueeze(op, first, [0]), unsqueeze(op, second, [0]), axis=0)
    return both


def _from_half(op: Builder, real: ir.Value, imaginary: ir.Value | None, number: ir.Value, half: ir.Value) -> ir.Value:
    """The real signal from half of its spectrum: every number except the first and the middle one counts twice."""
    cosine, sine = _matrices(op, real, number, half, number)
    place = op.Range(op.constant(np.array(0)), _scalar(op, half), op.constant(np.array(1)))
    mirrored = op.Sub(number, place)
    single = op.Or(op.Equal(place, op.constant(np.array(0))), op.Equal(mirrored, place))
    weight = op.Where(single, op.like(1, real), op.like(2, real))
    weight = op.Div(weight, op.cast(number, _dtype(real)))
    signal = op.MatMul(op.Mul(real, weight), cosine)
    if imaginary is not None:
        signal = op.Sub(signal, op.MatMul(op.Mul(imaginary, weight), sine))
    result: ir.Value = unsqueeze(op, signal, [0])
    return result


def _matrices(
    op: Builder, like: ir.Value, number: ir.Value, rows: ir.Value, columns: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """The cosines and sines of 2 pi r c / N, with r c modulo N so that large angles are exact."""

    def count(size: ir.Value, shape: list[int]) -> ir.Value:
        numbers = op.Range(op.constant(np.array(0)), _scalar(op, size), op.constant(np.array(1)))
        result: ir.Value = op.Reshape(numbers, op.constant(np.array(shape)))
        return result

    sizes = [known(size) for size in (number, rows, columns)]
    if all(size is not None for size in sizes):
        total, height, width = (int(size.item()) for size in sizes if size is not None)
        angles = np.outer(np.arange(height), np.arange(width)) % total * (2 * math.pi / total)
        return op.like(np.cos(angles), like), op.like(np.sin(angles), like)
    # The angles are in float64, because in float32 their errors would not cancel.
    turns = op.Mod(op.Mul(count(rows, [-1, 1]), count(columns, [1, -1])), number)
    wide = ir.DataType.DOUBLE
    angle = op.Mul(op.Div(op.cast(turns, wide), op.cast(number, wide)), 2 * math.pi)
    # The engine supports the sine in float64, but not the cosine.
    return op.cast(op.Sin(op.Add(angle, math.pi / 2)), _dtype(like)), op.cast(op.Sin(angle), _dtype(like))


def _fit(op: Builder, value: ir.Value, length: ir.Value) -> ir.Value:
    """Crop or zero-pad the last axis to a length."""
    shape = op.Shape(value)
    last = op.constant(np.array([-1]))
    front = op.Slice(shape, op.constant(np.array([0])), last)
    zeros = op.Expand(op.like(0, value), op.Concat(front, length, axis=0))
    longer = op.Concat(value, zeros, axis=-1)
    result: ir.Value = op.Slice(longer, op.constant(np.array([0])), length, last)
    return result


def _scalar(op: Builder, value: ir.Value) -> ir.Value:
    result: ir.Value = op.Gather(value, op.constant(np.array(0)), axis=0)
    return result


def _dtype(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None
    return value.dtype
