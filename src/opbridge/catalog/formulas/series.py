"""Polynomials and Chebyshev series, truncated to the precision of the element type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec

import numpy as np
import torch
from torch import Tensor

__all__ = ["at_least", "chebyshev", "in_working_precision", "polynomial"]

_MOST_GROWTH = 4.0
"""Above this ratio of absolute sums, the powers of t cancel too much, so Clenshaw's recurrence is used instead."""

_SCALE = 2.0**60
"""The scale of coefficients, by which the sum is divided: onnxscript's optimizer treats numbers below 1e-8 as 0."""

Arguments = ParamSpec("Arguments")


def in_working_precision(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Make a function compute in float32 for float16, bfloat16, integers and booleans.

    The result is float32 for integers, as in PyTorch; float16 and bfloat16 are converted back.
    """

    @functools.wraps(function)
    def computed(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        tensors = [value for value in args if isinstance(value, Tensor)]
        given = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
        dtype = given if given.is_floating_point or given.is_complex else torch.get_default_dtype()
        working = dtype if dtype.itemsize >= 4 else torch.float32
        result = function(*(value.to(working) if isinstance(value, Tensor) else value for value in args), **kwargs)  # type: ignore[arg-type]
        return result.to(dtype)

    return computed


def at_least(x: Tensor, low: float) -> Tensor:
    """The larger number; infinity is kept, which ONNX Runtime's Clip without an upper limit would make finite."""
    return torch.where(x < low, low, x)


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c[0] + c[1] x + c[2] x² + ..., by Horner's rule."""
    if len(coefficients) == 1:
        return torch.full_like(x, coefficients[0])
    result = x * (coefficients[-1] * _SCALE) + coefficients[-2] * _SCALE
    for coefficient in coefficients[-3::-1]:
        result = result * x + coefficient * _SCALE
    return result / _SCALE


def chebyshev(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c[0] + c[1] T1(t) + c[2] T2(t) + ..., for t in [-1, 1].

    The series is truncated if the rest is below a sixteenth of the element type's epsilon. It is summed as a polynomial
    if that is stable, otherwise by Clenshaw's recurrence (Clenshaw, "A note on the summation of Chebyshev series",
    1955).

    Args:
        t: A float32 or float64 tensor.
        coefficients: The coefficients, sufficient for float64.
    """
    rest = np.cumsum(np.abs(coefficients)[::-1])[::-1]
    limit = torch.finfo(t.dtype).eps / 16 * abs(coefficients[0])
    kept = np.asarray(coefficients)[: max(1, int(np.count_nonzero(rest > limit)))]
    powers = np.polynomial.chebyshev.cheb2poly(kept)
    if np.abs(powers).sum() <= _MOST_GROWTH * abs(coefficients[0]):
        return polynomial(t, [float(power) for power in powers])
    later = torch.zeros_like(t)
    latest = torch.scalar_tensor(float(kept[-1]) * _SCALE, dtype=t.dtype).expand(t.shape)
    for coefficient in kept[-2:0:-1]:
        later, latest = latest, 2 * t * latest - later + float(coefficient) * _SCALE
    return (t * latest - later + float(kept[0]) * _SCALE) / _SCALE
