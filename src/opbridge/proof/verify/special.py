"""Runs a model on special values (IEEE 754), and checks whether the results are of the same kinds as in PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from opbridge.errors import OpbridgeError, described_error
from opbridge.proof.verify.compare import Verdict, is_floating
from opbridge.proof.verify.perturbed import perturbed_feeds
from opbridge.proof.verify.special_values import SpecialDifference, SpecialValues
from opbridge.proof.verify.trace import Status

if TYPE_CHECKING:
    from opbridge.proof.bisect.intermediates import Intermediate

__all__ = ["OutsideContract", "examined", "judged_by_kind", "special_differences", "special_feeds"]

Feeds = Mapping[str, np.ndarray]
Runs = Callable[[Feeds], tuple[Feeds, Feeds]]

_SHARE = 16
_LARGE = 1000.0
_KINDS = ("a number", "NaN", "infinity", "-infinity", "0", "-0", "a subnormal number")
_NUMBER, _NAN, _INFINITY, _LOWEST, _ZERO, _NEGATIVE_ZERO, _SUBNORMAL = range(len(_KINDS))
_FLUSHED = 8
_FAR = 0.1
_PERTURBED_RUNS = 3


class OutsideContract(Exception):
    """The reference computes NaN, and the contract of the model excludes it; the message says where."""


def examined(feeds: Feeds, reference: Runs, engine: Callable[[Feeds], Feeds], *, seed: int) -> list[SpecialValues]:
    """Put each kind of special values into ``feeds``, and compare the engine's results with the reference's.

    Args:
        feeds: Inputs that the model accepts.
        reference: Runs the reference; returns the outputs to compare in their own types, and in float64, or raises
            :class:`OutsideContract`.
        engine: Runs the engine.
        seed: The seed of the positions of special values.
    """
    found = []
    for values, changed in special_feeds(feeds, seed):
        try:
            own, float64 = reference(changed)
        except OutsideContract as error:
            found.append(SpecialValues(values, "outside the contract", error=f"{error} is NaN in PyTorch"))
            continue
        except Exception as error:
            found.append(SpecialValues(values, "refused", error=described_error(error)))
            continue
        try:
            results = engine(changed)
        except OpbridgeError as error:
            found.append(SpecialValues(values, "error", error=error.message))
            continue
        # For other kinds, the sign of a zero results from underflow and cancellation, and has no meaning.
        signs = values == "-0"
        differences = [d for n in own for d in special_differences(n, results.get(n), own[n], float64[n], signs)]
        if differences:
            nearby = _nearby(changed, reference, seed)
            differences = [
                difference
                for name in own
                for difference in special_differences(
                    name, results.get(name), own[name], float64[name], signs, [outputs[name] for outputs in nearby]
                )
            ]
        found.append(SpecialValues(values, "differs" if differences else "as PyTorch", tuple(differences)))
    return found


def _nearby(feeds: Feeds, reference: Runs, seed: int) -> list[Feeds]:
    """The reference's results on perturbed inputs."""
    found = []
    for perturbed in perturbed_feeds(feeds, seed, _PERTURBED_RUNS):
        # PyTorch may refuse perturbed inputs, for example by an assertion.
        with contextlib.suppress(Exception):
            found.append(reference(perturbed)[0])
    return found


def judged_by_kind(values: str) -> Callable[[np.ndarray, Intermediate], tuple[Status, Verdict]]:
    """A function for bisection that judges intermediate values as :func:`examined` judges outputs.

    Args:
        values: The kind of the special values in the inputs.
    """

    def judge(result: np.ndarray, value: Intermediate) -> tuple[Status, Verdict]:
        own, float64 = value.own, value.float64
        if is_floating(result.dtype) and is_floating(own.dtype):
            result = result.astype(own.dtype)
        usable = own if float64 is None or float64.shape != own.shape else float64
        found = special_differences("", result, own, usable, values == "-0")
        error = np.inf if found else 0.0
        detail = "; ".join(str(item).removeprefix(": ") for item in found)
        return ("differs" if found else "equal"), Verdict(not found, error, 0.0, 0.0, error, detail)

    return judge


def special_feeds(feeds: Feeds, seed: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The inputs with special values at a few positions of every floating-point input, one kind after the other."""
    kinds = ("NaN", "infinity", "-0", "subnormal", "large", "extremes")
    for number, kind in enumerate(kinds):
        random = np.random.default_rng([seed, number])
        changed = {
            name: _with(array, _values(kind, array.dtype), random)
            if is_floating(np.asarray(array).dtype) and np.asarray(array).size
            else array
            for name, array in feeds.items()
        }
        if any(changed[name] is not feeds[name] for name in feeds):
            yield kind, changed


def _values(kind: str, dtype: np.dtype) -> list[float]:
    info = ml_dtypes.finfo(dtype)
    largest, normal, smallest = float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)
    large = min(_LARGE, largest / 2)
    return {
        "NaN": [np.nan],
        "infinity": [np.inf, -np.inf],
        "-0": [-0.0],
        "subnormal": [normal / 2, -normal / 2, smallest],
        "large": [large, -large],
        "extremes": [largest, -largest, normal, -normal],
    }[kind]


def _with(array: np.ndarray, values: list[float], random: np.random.Generator) -> np.ndarray:
    flat = np.array(array, order="C").reshape(-1)
    count = min(flat.size, max(len(values), flat.size // _SHARE))
    places = random.choice(flat.size, count, replace=False)
    with np.errstate(all="ignore"):
        flat[places] = np.resize(np.array(values, np.float64), count).astype(flat.dtype)
    return flat.reshape(array.shape)


def special_differences(
    output: str,
    result: np.ndarray | None,
    own: np.ndarray,
    float64: np.ndarray,
    signs_of_zeros: bool,
    nearby: Sequence[np.ndarray] = (),
) -> list[SpecialDifference]:
    """The elements that are of another kind in the engine than in PyTorch, if the float64 reference confirms PyTorch's.

    Args:
        output: The output's name.
        result: The engine's result; None if there is no such output.
        own: PyTorch's result.
        float64: The result of the float64 reference.
        signs_of_zeros: Whether the sign of a zero matters.
        nearby: PyTorch's results on perturbed inputs; elements that change there are not compared.
    """
    if result is not None and any(other.shape != own.shape for other in nearby):
        return []
    if result is None or result.shape != own.shape or result.dtype != own.dtype:
        form = "no such output" if result is None else f"{result.dtype.name} of shape {list(result.shape)}"
        return [SpecialDifference(output, f"{own.dtype.name} of shape {list(own.shape)}", form, own.size, own.size, ())]
    if not is_floating(own.dtype):
        steady = np.all([other == own for other in nearby], axis=0)
        return _listed(output, own.shape, {("a value", "another value"): (result != own) & steady})
    with np.errstate(all="ignore"):
        narrowed = np.asarray(float64, np.float64).astype(own.dtype)
        kinds = _kinds(result), _kinds(own)
        differs = (kinds[0] != kinds[1]) & ~_only_rounding(result, own, *kinds)
        # If an intermediate value overflows in PyTorch and not in float64, the results of both may be of any kind.
        for other in (narrowed, *nearby):
            differs &= _kinds(other) == kinds[1]
        if not signs_of_zeros:
            differs &= (result != 0) | (own != 0)
        groups = {}
        for mine in range(len(_KINDS)):
            for theirs in range(len(_KINDS)):
                groups[_KINDS[theirs], _KINDS[mine]] = differs & (kinds[0] == mine) & (kinds[1] == theirs)
        groups["a number", "another number"] = _far(result, own, [narrowed, *nearby])
    return _listed(output, own.shape, groups)


def _kinds(values: np.ndarray) -> np.ndarray:
    numbers = values.astype(np.float64)
    normal = float(ml_dtypes.finfo(values.dtype).smallest_normal)
    subnormal = (numbers != 0) & (np.abs(numbers) < normal)
    negative = np.signbit(numbers)
    conditions = [np.isnan(numbers), np.isinf(numbers) & ~negative, np.isinf(numbers), (numbers == 0) & ~negative]
    choices = [_NAN, _INFINITY, _LOWEST, _ZERO, _NEGATIVE_ZERO, _SUBNORMAL]
    return np.select([*conditions, numbers == 0, subnormal], choices, _NUMBER)


def _only_rounding(result: np.ndarray, own: np.ndarray, kinds: np.ndarray, own_kinds: np.ndarray) -> np.ndarray:
    """The elements whose kinds differ only by rounding: near overflow, near the subnormal numbers, and near zero."""
    info = ml_dtypes.finfo(own.dtype)
    numbers, theirs = result.astype(np.float64), own.astype(np.float64)
    small = (_NUMBER, _ZERO, _NEGATIVE_ZERO, _SUBNORMAL)
    flushed = (own_kinds == _SUBNORMAL) & (numbers == 0)
    clearly = np.abs(theirs) >= _FLUSHED * float(info.smallest_subnormal)
    signs = (numbers == 0) & (theirs == 0)
    near_zero = np.isin(kinds, small) & np.isin(own_kinds, small) & ~signs & ~(flushed & clearly)
    close = 1 - 64 * float(info.eps)
    largest = float(info.max)
    overflow = (np.abs(numbers) >= close * largest) & (np.abs(theirs) >= close * largest) & (numbers * theirs > 0)
    only: np.ndarray = near_zero | overflow
    return only


def _far(result: np.ndarray, own: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """The elements that are far from PyTorch's, if ``others`` confirm PyTorch's; small elements are left out.

    If more elements of ``others`` are themselves far from PyTorch's, no element is returned: those that agree may agree
    by chance.
    """
    mine, theirs, *confirming = (array.astype(np.float64) for array in (result, own, *others))
    finite = np.all([np.isfinite(values) for values in (mine, theirs, *confirming)], axis=0)
    scale = np.abs(np.where(finite, theirs, 0.0)).max(initial=0.0)
    large = np.abs(theirs) > float(np.sqrt(float(ml_dtypes.finfo(own.dtype).eps))) * scale
    sure = large.copy()
    for values in confirming:
        sure &= np.abs(theirs - values) <= 0.01 * _FAR * np.abs(theirs)
    far: np.ndarray = finite & sure & (np.abs(mine - theirs) > _FAR * np.abs(theirs))
    return far if far.sum() > (finite & large & ~sure).sum() else np.zeros_like(far)


def _listed(
    output: str, shape: tuple[int, ...], groups: Mapping[tuple[str, str], np.ndarray]
) -> list[SpecialDifference]:
    found = []
    for (theirs, mine), where in groups.items():
        count = int(np.count_nonzero(where))
        if count:
            first = np.unravel_index(int(np.argmax(where)), shape)
            index = tuple(int(i) for i in first)
            found.append(SpecialDifference(output, theirs, mine, count, int(np.prod(shape)), index))
    return found
