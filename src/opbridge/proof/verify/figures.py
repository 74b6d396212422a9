"""Extra error statistics of an output: distances, histograms, and whether the input is ill-conditioned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from opbridge.proof.verify.compare import is_floating

__all__ = ["condition_text", "differences", "figures", "histograms", "ill_conditioned", "relative_error", "ulps"]

Histogram = tuple[tuple[float, int], ...]

_FIRST_EXPONENT, _LAST_EXPONENT = -3, 40
_SHARE = 0.9
_MOST_SAMPLES = 1 << 20


def figures(
    result: np.ndarray,
    own: np.ndarray,
    reference: np.ndarray,
    units: tuple[np.ndarray, np.ndarray],
    own_error: float,
) -> Mapping[str, Any]:
    """The fields of :class:`~opbridge.proof.verify.verification.Comparison` on which the verdict does not depend.

    Args:
        result: The engine's output, of a floating-point type.
        own: PyTorch's output, of the same type and shape.
        reference: The float64 reference.
        units: The engine's errors in units, and PyTorch's.
        own_error: PyTorch's error, as :func:`relative_error` computes it.
    """
    counted, own_counted = histograms(*units)
    return {
        "max_ulp": ulps(result, own),
        "histogram": counted,
        "torch_histogram": own_counted,
        "relative_error": relative_error(result, reference),
        "torch_relative_error": own_error,
        "ill_conditioned": ill_conditioned(own.dtype, own_error),
    }


def differences(result: np.ndarray, own: np.ndarray) -> tuple[float, float]:
    """The largest absolute and relative difference; infinite if only one of two elements is finite."""
    if result.shape != own.shape or not result.size:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        one, other = result.astype(np.float64), own.astype(np.float64)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        gap = np.where(same, 0.0, np.abs(one - other))
        gap = np.where(np.isnan(gap), np.inf, gap)
        relative = np.where(other != 0, gap / np.abs(other), 0.0)
    return float(gap.max()), float(np.where(np.isnan(relative), np.inf, relative).max())


def ulps(result: np.ndarray, own: np.ndarray) -> float:
    """The largest distance in units in the last place: the number of steps from one result to the other.

    The distance of 0 and -0.0 and of two NaN is 0; the distance of NaN and a number is infinite.
    """
    if not is_floating(own.dtype) or result.shape != own.shape or not own.size:
        return 0.0
    nan = np.isnan(result), np.isnan(own)
    if bool((nan[0] != nan[1]).any()):
        return float("inf")
    one, other = _ordinals(result), _ordinals(own)
    # The difference of two float64 ordinals of unlike signs may not fit into 64 bits, so it is computed in float64.
    alike = (one < 0) == (other < 0)
    distance = np.where(
        alike,
        np.abs(np.where(alike, one - other, 0)).astype(np.float64),
        np.abs(one.astype(np.float64)) + np.abs(other.astype(np.float64)),
    )
    return float(np.where(nan[0], 0.0, distance).max())


def _ordinals(values: np.ndarray) -> np.ndarray:
    """The position of each number among all numbers of its type: the positions of neighbours differ by 1."""
    bits = 8 * values.dtype.itemsize
    raw = np.ascontiguousarray(values).view(f"int{bits}").astype(np.int64)
    lowest = -(1 << (bits - 1))
    ordinals: np.ndarray = np.where(raw < 0, lowest - raw, raw)
    return ordinals


def histograms(units: np.ndarray, own_units: np.ndarray) -> tuple[Histogram, Histogram]:
    """The histograms of the errors of both sides: pairs of an upper bound, a power of 2, and a number of elements.

    The first bound is 1/8 unit, and includes exact elements; the last bound is infinity. Bounds above the largest
    finite error of either side are left out.
    """
    counts = [_counts(units), _counts(own_units)]
    used = max((place for side in counts for place, count in enumerate(side[:-1]) if count), default=0)
    bounds = [2.0 ** (_FIRST_EXPONENT + place) for place in range(used + 1)]
    first, second = ((*zip(bounds, side, strict=False), (float("inf"), side[-1])) for side in counts)
    return first, second


def _counts(units: np.ndarray) -> list[int]:
    """The number of elements for each power of 2; the last item counts larger and infinite errors."""
    flat = np.asarray(units, np.float64).reshape(-1)
    finite = np.isfinite(flat)
    mantissas, exponents = np.frexp(np.where(finite & (flat > 0), flat, 2.0**_FIRST_EXPONENT))
    # frexp returns mantissas from 0.5 on, and a power of 2 belongs to the bound of the same value.
    exponents = np.clip(exponents - (mantissas == 0.5), _FIRST_EXPONENT, _LAST_EXPONENT + 1)
    exponents = np.where(finite, exponents, _LAST_EXPONENT + 1)
    return list(map(int, np.bincount(exponents - _FIRST_EXPONENT, minlength=_LAST_EXPONENT + 2 - _FIRST_EXPONENT)))


def relative_error(result: np.ndarray, reference: np.ndarray) -> float:
    """The 90% quantile of the error, relative to the output's typical magnitude in the reference.

    Infinite if the reference is zero everywhere and the result is not.
    """
    if result.shape != reference.shape or not result.size:
        return 0.0
    step = max(1, result.size // _MOST_SAMPLES)
    one, other = result.reshape(-1)[::step].astype(np.float64), reference.reshape(-1)[::step]
    finite = np.isfinite(one) & np.isfinite(other)
    one, other = one[finite], other[finite]
    if not one.size:
        return 0.0
    magnitudes = np.abs(other[other != 0])
    error = float(np.quantile(np.abs(one - other), _SHARE, method="higher"))
    if not error:
        return 0.0
    return error / float(np.median(magnitudes)) if magnitudes.size else float("inf")


def ill_conditioned(dtype: np.dtype, own_error: float) -> bool:
    """Whether PyTorch's own result has lost at least half of its type's digits, so that no engine can compute them."""
    return own_error > float(np.sqrt(float(ml_dtypes.finfo(dtype).eps)))


def condition_text(dtype: np.dtype, own_error: float, reference: str = "PyTorch") -> str:
    """One line that says that the model is ill-conditioned on this input, with the error."""
    eps = float(ml_dtypes.finfo(dtype).eps)
    return (
        f"ill-conditioned on this input: the relative error of {reference}'s own result is {own_error:.2g}, "
        f"the machine epsilon of {dtype.name} is {eps:.2g}"
    )
