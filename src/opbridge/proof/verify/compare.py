"""How far a result may be from PyTorch's: the error budget of floating-point outputs, and exactness of all others.

PyTorch's own result in the model's dtype has an error too, and the float64 reference shows it. An engine that sums in
another order has an error of the same size on the same input, so it is held to a small multiple of PyTorch's, plus a
floor for outputs on which PyTorch is lucky or exact. Errors are counted in *units*: see :func:`error_units`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

__all__ = ["ERROR_RATIO", "QUANTILES", "Verdict", "allclose", "budgets", "error_units", "floor_units", "judge"]

ERROR_RATIO = 8.0
"""The engine's error may be this many times PyTorch's.

ONNX Runtime's largest error was measured at up to twice PyTorch's on networks (ResNet-50, ViT-B, MobileNetV3,
LSTM, attention, a chain of 24 softmaxes) and at five times on an FFT by matrix products. Planted faults were off by
hundreds of units (a factor of 1.0001) to millions."""

FLOOR = 32.0
"""Units that are always allowed. Single operators of ONNX Runtime (SiLU, cumsum, GELU by tanh) were measured at up to
20 units off where PyTorch is off by 1 to 7: it accumulates in double, or has better approximations of exp and tanh."""

LOW_PRECISION_FLOOR = 8.0
"""The same for float16, bfloat16 and float8, whose unit is so coarse that 32 of them would hide a wrong constant."""

DOUBLE_FLOOR = 2.0**14
"""The same for float64: there is no wider reference, so PyTorch's own error is unknown. 4e-12 relative, which still
shows a computation that was done in float32."""

QUANTILES = (0.5, 0.9, 0.99, 1.0)
"""Where the two error distributions are compared. The largest error alone could hide a fault behind one
ill-conditioned element; a fault in 1% of the elements shows at 1.0 and one in half of them at 0.5."""

_MOST_SAMPLES = 1 << 20


def is_floating(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is a real floating-point type, ml_dtypes' included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def floor_units(dtype: np.dtype, longest_sum: int = 1) -> float:
    """Units allowed whatever PyTorch's error is.

    A sum of n terms taken one by one has an error near sqrt(n) units, where PyTorch's kernels accumulate pairwise or in
    double and show almost none.

    Args:
        dtype: The output's type.
        longest_sum: Terms of the longest sum in the model.
    """
    if dtype.itemsize < 4:
        return LOW_PRECISION_FLOOR
    if dtype.itemsize > 4:
        return DOUBLE_FLOOR + math.sqrt(longest_sum)
    return FLOOR + math.sqrt(longest_sum)


def _median_of_nonzero(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    flat = flat[:: max(1, flat.size // _MOST_SAMPLES)]
    flat = flat[(flat > 0) & np.isfinite(flat)]
    return float(np.median(flat)) if flat.size else 0.0


def _unit(dtype: np.dtype, own: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """Size of one unit for every element (see :func:`error_units`)."""
    info = ml_dtypes.finfo(dtype)
    eps, tiny = float(info.eps), float(info.smallest_normal)
    magnitude = np.abs(wide)
    typical = eps * _median_of_nonzero(magnitude)
    typical_error = _median_of_nonzero(np.abs(own - wide))
    unit: np.ndarray = np.maximum(eps * magnitude, max(typical, typical_error, tiny))
    return unit


def error_units(result: np.ndarray, own: np.ndarray, wide: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Errors of ``result`` against ``wide``, elementwise, in units.

    A unit is the machine epsilon of ``dtype`` at the element's own magnitude, but not below the output's typical
    magnitude (so that an element that cancels to zero is not held to its own), nor below PyTorch's typical error, nor
    below the smallest normal number (an engine may flush denormal numbers to zero). *Typical* is the median over the
    elements that are not zero: neither a few huge values (a mask filled with -3e38) nor many zeros move it.

    Args:
        result: The result to measure, as float64.
        own: PyTorch's in the model's dtype, as float64.
        wide: The float64 reference.
        dtype: The type that the output has in the model.

    Returns:
        Finite errors. Where both are the same infinity or both NaN the error is 0; where ``own`` and ``result``
        disagree about being finite it is infinite. Where only the reference is finite (it has no overflow), ``own``
        and ``result`` agreeing is no error. Where PyTorch's own type overflows on the way and ``result`` is right (an
        engine may compute in a wider one), it is held to the reference alone.
    """
    with np.errstate(all="ignore"):
        referred = np.isfinite(result) & np.isfinite(wide)
        unit = _unit(dtype, *(np.where(referred & np.isfinite(own), value, 0.0) for value in (own, wide)))
        unit = np.maximum(unit, float(ml_dtypes.finfo(dtype).eps) * np.where(referred, np.abs(wide), 0.0))
        errors = np.where(referred, np.abs(result - wide) / unit, 0.0)
        same = (own == result) | (np.isnan(own) & np.isnan(result)) | _at_overflow(result, own, wide, dtype)
        undefined = np.isfinite(own) & np.isfinite(result)  # only the reference is not: it can't judge
        errors = np.where(referred | same, errors, np.where(undefined, np.abs(result - own) / unit, np.inf))
    return errors


def _at_overflow(result: np.ndarray, own: np.ndarray, wide: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Where the reference is so close to the largest number that either may overflow, to the right side.

    Where it is beyond that number, PyTorch may have NaN for what overflowed on the way.
    """
    info = ml_dtypes.finfo(dtype)
    largest = float(info.max)
    close = np.isfinite(wide) & (np.abs(np.abs(wide) / largest - 1) < 64 * float(info.eps))
    agree = (np.sign(result) == np.sign(wide)) & (np.sign(own) == np.sign(wide))
    beyond = np.isfinite(wide) & (np.abs(wide) > largest) & ~np.isfinite(own)
    right = beyond & np.isinf(result) & (np.sign(result) == np.sign(wide))
    big: np.ndarray = close & agree & (np.abs(result) > 0.9 * largest)
    return big | right


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a floating-point output came out; the fields are :class:`~opbridge.verification.Comparison`'s."""

    passed: bool
    engine_error: float
    torch_error: float
    budget: float
    ratio: float
    detail: str = ""


def _quantiles(units: np.ndarray) -> list[float]:
    flat = units.reshape(-1)
    if not flat.size:
        return [0.0] * len(QUANTILES)
    sample = flat[:: max(1, flat.size // _MOST_SAMPLES)]
    with np.errstate(invalid="ignore"):
        inner = np.quantile(sample, QUANTILES[:-1], method="higher")
    return [*map(float, inner), float(flat.max())]


def budgets(torch_units: Sequence[np.ndarray], floor: float) -> list[float]:
    """Units allowed at each of :data:`QUANTILES`, from PyTorch's errors on one or more runs."""
    columns = zip(*(_quantiles(np.where(np.isfinite(units), units, 0.0)) for units in torch_units), strict=True)
    return [ERROR_RATIO * max(column) + floor for column in columns]


def judge(engine_units: np.ndarray, torch_units: Sequence[np.ndarray], floor: float) -> Verdict:
    """Hold the engine's errors against PyTorch's.

    Args:
        engine_units: The engine's errors (:func:`error_units`).
        torch_units: PyTorch's own errors on the same input; further entries are of runs on perturbed inputs, if
            the output has too few elements for one run to show a typical error.
        floor: Units always allowed.
    """
    allowed = budgets(torch_units, floor)
    errors = _quantiles(engine_units)
    ratios = [error / limit for error, limit in zip(errors, allowed, strict=True)]
    worst = int(np.argmax(ratios))
    torch_error = (allowed[-1] - floor) / ERROR_RATIO
    passed = ratios[worst] <= 1
    detail = "" if passed else _explain(engine_units, errors, allowed, worst)
    return Verdict(passed, errors[-1], torch_error, allowed[-1], ratios[worst], detail)


def _explain(units: np.ndarray, errors: Sequence[float], allowed: Sequence[float], worst: int) -> str:
    if np.isinf(errors[-1]):
        place = np.unravel_index(int(np.argmax(np.isinf(units))), units.shape)
        count = int(np.isinf(units).sum())
        return f"{count} of {units.size} elements disagree about being finite, first at {[int(i) for i in place]}"
    place = np.unravel_index(int(np.argmax(units)), units.shape)
    if worst == len(QUANTILES) - 1:
        too_far = int((units > allowed[-1]).sum())
        share = f"{too_far} of {units.size} elements are beyond the budget"
    else:
        share = (
            f"{100 * (1 - QUANTILES[worst]):.0f}% of the elements are off by {errors[worst]:.3g} units or more, "
            f"where {allowed[worst]:.3g} are allowed"
        )
    return f"{share}, the worst at {[int(i) for i in place]}"


def allclose(result: np.ndarray, own: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """numpy.isclose's test of ``result`` against PyTorch's result, as errors in units of the tolerance."""
    with np.errstate(all="ignore"):
        error = np.abs(result - own)
        units = np.where(error == 0, 0.0, error / (atol + rtol * np.abs(own)))
        same = (result == own) | (np.isnan(result) & np.isnan(own))
        finite = np.isfinite(result) & np.isfinite(own)
        out: np.ndarray = np.where(same, 0.0, np.where(finite, units, np.inf))
    return out
