"""Compares a result with PyTorch's: floating-point outputs within an tolerance, all others exactly.

PyTorch's own result in the model's dtype has an error too, which the float64 reference shows. An engine that sums in
another order has an error of the same size on the same input. Its error may therefore be a small multiple of PyTorch's,
plus a floor for outputs on which PyTorch's error happens to be small. Errors are counted in *units*: see
:func:`error_units`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from opbridge.records import rounded

__all__ = ["ERROR_RATIO", "QUANTILES", "Verdict", "allclose", "budgets", "error_units", "floor_units", "judge"]

ERROR_RATIO = 8.0
"""The engine's error may be this many times PyTorch's.

ONNX Runtime's largest error was measured at up to twice PyTorch's on networks (ResNet-50, ViT-B, MobileNetV3,
LSTM, attention, a chain of 24 softmaxes) and at five times on an FFT by matrix products. Planted faults were off by
hundreds of units (a factor of 1.0001) to millions."""

FLOOR = 32.0
"""The error in units that is always allowed. The measured errors of single operators of ONNX Runtime (SiLU, cumsum,
GELU by tanh) are up to 20 units where PyTorch's are 1 to 7, because PyTorch accumulates in double or approximates exp
and tanh better."""

LOW_PRECISION_FLOOR = 8.0
"""The floor for float16, bfloat16 and float8: 32 of their coarse units would hide a wrong constant."""

DOUBLE_FLOOR = 2.0**14
"""The floor for float64. No more precise reference exists, so PyTorch's own error is unknown. This is a relative error
of 4e-12, which a computation in float32 exceeds."""

QUANTILES = (0.5, 0.9, 0.99, 1.0)
"""The quantiles at which the two error distributions are compared. If only the largest errors were compared, one
ill-conditioned element could hide a fault. A fault in 1% of the elements shows at 1.0, in half of them at 0.5."""

_MOST_SAMPLES = 1 << 20


def is_floating(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is a real floating-point type, ml_dtypes' included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def floor_units(dtype: np.dtype, longest_sum: int = 1) -> float:
    """The error in units that is allowed even if PyTorch has no error.

    A sequential sum of n terms has an error near sqrt(n) units; PyTorch's kernels accumulate pairwise or in double, and
    have almost none.

    Args:
        dtype: The output's type.
        longest_sum: The number of terms of the longest sum in the model.
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


def _unit(dtype: np.dtype, own: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The size of one unit for every element (see :func:`error_units`)."""
    info = ml_dtypes.finfo(dtype)
    eps, tiny = float(info.eps), float(info.smallest_normal)
    magnitude = np.abs(reference)
    typical = eps * _median_of_nonzero(magnitude)
    typical_error = _median_of_nonzero(np.abs(own - reference))
    unit: np.ndarray = np.maximum(eps * magnitude, max(typical, typical_error, tiny))
    return unit


def error_units(result: np.ndarray, own: np.ndarray, reference: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Errors of ``result`` against ``reference``, elementwise, in units.

    A unit is the machine epsilon of ``dtype`` at the element's magnitude or at the output's typical magnitude,
    whichever is larger, because an element may cancel to zero. It is not smaller than PyTorch's typical error, nor than
    the smallest normal number, because an engine may flush denormal numbers to zero. *Typical* is the median over the
    elements that are not zero, which neither a few huge values (a mask filled with -3e38) nor many zeros change.

    Args:
        result: The result to measure, as float64.
        own: PyTorch's result in the model's dtype, converted to float64.
        reference: The float64 reference.
        dtype: The type that the output has in the model.

    Returns:
        The errors. If ``own`` and ``result`` are the same infinity or both NaN, the error is 0, even if the reference
        is finite because it does not overflow. If only one of ``own`` and ``result`` is finite, the error is infinite.
        If PyTorch's own type overflows in an intermediate value and ``result`` does not, because an engine may compute
        in a wider type, ``result`` is compared with the reference alone.
    """
    with np.errstate(all="ignore"):
        referred = np.isfinite(result) & np.isfinite(reference)
        unit = _unit(dtype, *(np.where(referred & np.isfinite(own), value, 0.0) for value in (own, reference)))
        unit = np.maximum(unit, float(ml_dtypes.finfo(dtype).eps) * np.where(referred, np.abs(reference), 0.0))
        errors = np.where(referred, np.abs(result - reference) / unit, 0.0)
        same = (own == result) | (np.isnan(own) & np.isnan(result)) | _at_overflow(result, own, reference, dtype)
        undefined = np.isfinite(own) & np.isfinite(result)  # Only the reference is not finite.
        errors = np.where(referred | same, errors, np.where(undefined, np.abs(result - own) / unit, np.inf))
    return errors


def _at_overflow(result: np.ndarray, own: np.ndarray, reference: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The elements whose reference is so close to the largest number that either result may overflow.

    If the reference is beyond that number, PyTorch's result may be NaN, because an intermediate value overflowed.
    """
    info = ml_dtypes.finfo(dtype)
    largest = float(info.max)
    close = np.isfinite(reference) & (np.abs(np.abs(reference) / largest - 1) < 64 * float(info.eps))
    agree = (np.sign(result) == np.sign(reference)) & (np.sign(own) == np.sign(reference))
    beyond = np.isfinite(reference) & (np.abs(reference) > largest) & ~np.isfinite(own)
    right = beyond & np.isinf(result) & (np.sign(result) == np.sign(reference))
    big: np.ndarray = close & agree & (np.abs(result) > 0.9 * largest)
    return big | right


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on an output; the fields are those of :class:`~opbridge.proof.verify.verification.Comparison`."""

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
    """The error in units that is allowed at each of :data:`QUANTILES`, from PyTorch's errors in one or more runs."""
    columns = zip(*(_quantiles(np.where(np.isfinite(units), units, 0.0)) for units in torch_units), strict=True)
    return [ERROR_RATIO * max(column) + floor for column in columns]


def judge(engine_units: np.ndarray, torch_units: Sequence[np.ndarray], floor: float) -> Verdict:
    """Compare the engine's errors with PyTorch's.

    Args:
        engine_units: The engine's errors (:func:`error_units`).
        torch_units: PyTorch's own errors on the same input, then those of runs on perturbed inputs, because one
            run may not show a typical error.
        floor: The error in units that is always allowed.
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
        return f"{count} of {units.size} elements are finite on one side only, the first at {[int(i) for i in place]}"
    place = np.unravel_index(int(np.argmax(units)), units.shape)
    if worst == len(QUANTILES) - 1:
        too_far = int((units > allowed[-1]).sum())
        share = f"{too_far} of {units.size} elements exceed the tolerance"
    else:
        share = (
            f"{100 * (1 - QUANTILES[worst]):.0f}% of the elements have an error of at least {rounded(errors[worst])} "
            f"units (tolerance {rounded(allowed[worst])})"
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
