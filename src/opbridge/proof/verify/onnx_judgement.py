"""An engine's outputs against those of the original ONNX model, by the rule of :mod:`opbridge.proof.verify.compare`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np

from opbridge.errors import OpbridgeError
from opbridge.proof.verify.compare import Verdict, allclose, error_units, floor_units, is_floating, judge
from opbridge.proof.verify.distribution import compare_runs
from opbridge.proof.verify.figures import condition_text, differences, figures, relative_error
from opbridge.proof.verify.onnx_reference import Feeds, OriginalRun
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.verification import Comparison

__all__ = ["ModelJudgement", "believed", "jiggled"]

_JIGGLES = 5
_DRAWS = 8
_MOST_LUCK = 1e4


@dataclasses.dataclass
class ModelJudgement:
    """Judges the outputs of one case.

    Attributes:
        case: The case's name.
        feeds: Its inputs.
        run: What the original makes of them.
        again: Runs the original on other inputs.
        random: The outputs that depend on random draws.
        longest_sum: Terms of the longest sum in the model.
        tolerance: The tolerance that replaces the error budget.
        seed: Of jiggled inputs.
    """

    case: str
    feeds: Feeds
    run: OriginalRun
    again: Callable[[Feeds], OriginalRun]
    random: frozenset[str]
    longest_sum: int
    tolerance: Tolerance | None
    seed: int
    _jiggled: list[OriginalRun] | None = None

    def compare(self, results: Mapping[str, np.ndarray], engine: Callable[[Feeds], Feeds]) -> list[Comparison]:
        """One comparison per output of the original, and one per output that it has not."""
        found = [self._compare(name, own, results, engine) for name, own in self.run.own.items()]
        text = "the model has an output of this name, the original has not"
        unexpected = [name for name in results if name not in self.run.own]
        return found + [Comparison(name, self.case, "missing", detail=text) for name in unexpected]

    def _compare(
        self, name: str, own: np.ndarray, results: Mapping[str, np.ndarray], engine: Callable[[Feeds], Feeds]
    ) -> Comparison:
        if name not in results:
            return Comparison(name, self.case, "missing", detail="the model has no such output")
        result = np.asarray(results[name])
        if result.dtype != own.dtype:
            detail = f"the engine gives {result.dtype.name}, the original {own.dtype.name}"
            return Comparison(name, self.case, "dtype", detail=detail)
        if name in self.random:
            return self._compare_random(name, engine)
        if result.shape == own.shape and result.tobytes() == own.tobytes():
            return Comparison(
                name, self.case, "equal", budget=floor_units(own.dtype) if is_floating(own.dtype) else 0.0
            )
        if not is_floating(own.dtype):
            return self._compare_exactly(name, result, own)
        if result.shape != own.shape:
            return self._compare_shapes(name, result, own)
        return self._compare_numbers(name, result, own)

    def _compare_numbers(self, name: str, result: np.ndarray, own: np.ndarray) -> Comparison:
        result64, own64 = result.astype(np.float64), own.astype(np.float64)
        if self.tolerance is not None:
            verdict, measured = self._within_tolerance(result64, own64, self.tolerance), {}
        else:
            wide = np.where(self._believed(name, own64, own.dtype), self._wide(self.run, name, own64), own64)
            units = error_units(result64, own64, wide, own.dtype), error_units(own64, own64, wide, own.dtype)
            verdict = self._verdict(name, units, (own64, wide), own.dtype)
            measured = dict(figures(result, own, wide, units, relative_error(own, wide)))
        condition = ""
        if measured.get("ill_conditioned"):
            condition = condition_text(own.dtype, measured["torch_relative_error"], "the original")
        max_abs, max_rel = differences(result, own)
        return Comparison(
            output=name,
            case=self.case,
            status="within budget" if verdict.passed else "differs",
            max_abs=max_abs,
            max_rel=max_rel,
            engine_error=verdict.engine_error,
            torch_error=verdict.torch_error,
            ratio=verdict.ratio,
            budget=verdict.budget,
            detail="; ".join(filter(None, (verdict.detail, condition))),
            **measured,
        )

    def _within_tolerance(self, result: np.ndarray, own: np.ndarray, tolerance: Tolerance) -> Verdict:
        units = allclose(result, own, tolerance.rtol, tolerance.atol)
        worst, wrong = float(units.max(initial=0.0)), int((units > 1).sum())
        detail = f"{wrong} of {units.size} elements are beyond the tolerance" if wrong else ""
        return Verdict(wrong == 0, worst, 0.0, 1.0, worst, detail)

    def _verdict(
        self, name: str, units: tuple[np.ndarray, np.ndarray], base: tuple[np.ndarray, np.ndarray], dtype: np.dtype
    ) -> Verdict:
        """By the budget. ``units``: the engine's and the original's errors, ``base`` its results and the wide ones."""
        (own, wide), floor = base, floor_units(dtype, self.longest_sum)
        own_units = [units[1]]
        verdict = judge(units[0], own_units, floor)
        if verdict.passed or verdict.ratio > _MOST_LUCK:
            return verdict
        # One run may show less than a typical error: without a float64 reference it shows none at all.
        believed = self._believed(name, own, dtype)
        for run in self._runs_nearby():
            other = run.own[name].astype(np.float64)
            if other.shape == own.shape:
                moved = wide + (other - np.where(believed, self._wide(run, name, own), own))
                own_units.append(error_units(np.where(np.isfinite(moved), moved, own), own, wide, dtype))
        return judge(units[0], own_units, floor)

    def _wide(self, run: OriginalRun, name: str, own: np.ndarray) -> np.ndarray:
        """A run's result in float64; ``own`` where there is none of that shape."""
        wide = None if run.wide is None else np.asarray(run.wide[name], np.float64)
        return own if wide is None or wide.shape != own.shape else wide

    def _believed(self, name: str, own: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return believed(own, self._wide(self.run, name, own), dtype)

    def _compare_exactly(self, name: str, result: np.ndarray, own: np.ndarray) -> Comparison:
        """Integers and truth values: each is right if the original gives it too, on inputs a rounding error away."""
        accepted = [own]
        if self.run.wide is not None:
            accepted.append(np.asarray(self.run.wide[name]))
        accepted += [run.own[name] for run in self._runs_nearby()]
        alike = [other for other in accepted if other.shape == result.shape]
        wrong = np.ones(result.shape, bool)
        for other in alike:
            wrong &= result != other
        count = int(wrong.sum())
        if alike and not count:
            detail = "differs only by near ties decided otherwise"
            return Comparison(name, self.case, "decision", detail=detail)
        if result.shape != own.shape:
            return self._compare_shapes(name, result, own)
        return Comparison(name, self.case, "differs", detail=f"{count} of {result.size} elements differ")

    def _compare_shapes(self, name: str, result: np.ndarray, own: np.ndarray) -> Comparison:
        detail = f"the engine gives shape {list(result.shape)}, the original {list(own.shape)}"
        return Comparison(name, self.case, "shape", detail=detail)

    def _compare_random(self, name: str, engine: Callable[[Feeds], Feeds]) -> Comparison:
        theirs = [engine(self.feeds)[name] for _ in range(_DRAWS)]
        mine = [self.run.own[name], *(self.again(self.feeds).own[name] for _ in range(_DRAWS - 1))]
        reason = compare_runs([a.reshape(-1) for a in theirs], [a.reshape(-1) for a in mine], self.seed)
        detail = reason or f"same distribution in {_DRAWS} runs of each"
        return Comparison(name, self.case, "differs" if reason else "random", detail=detail)

    def _runs_nearby(self) -> Sequence[OriginalRun]:
        """The original on inputs that differ by a rounding error."""
        if self._jiggled is None:
            random = np.random.default_rng(self.seed)
            self._jiggled = []
            for _ in range(_JIGGLES):
                try:
                    self._jiggled.append(self.again({k: jiggled(v, random) for k, v in self.feeds.items()}))
                except OpbridgeError:
                    break
        return self._jiggled


def believed(own: np.ndarray, wide: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Where the result in float64 is the original's, and not another one.

    Another program may have computed it, and a fault of that one would pass for an error of the original, which
    allows the engine as much.

    Args:
        own: The original's, as float64.
        wide: The result in float64.
        dtype: The type that the value has in the model.
    """
    finite = np.isfinite(own) & np.isfinite(wide)
    typical = float(np.median(np.abs(own[finite & (own != 0)]))) if (finite & (own != 0)).any() else 0.0
    with np.errstate(all="ignore"):
        close = np.abs(own - wide) <= _most_error(dtype) * np.maximum(np.abs(own), typical)
    found: np.ndarray = close | ~finite
    return found


def _most_error(dtype: np.dtype) -> float:
    """Of the typical magnitude: half of the type's digits are lost."""
    return float(np.sqrt(float(ml_dtypes.finfo(dtype).eps)))


def jiggled(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A floating-point input moved by one rounding error."""
    if array.dtype.kind != "f":
        return array
    noise = random.standard_normal(array.shape)
    return np.asarray(array.astype(np.float64) * (1 + np.finfo(array.dtype).eps * noise)).astype(array.dtype)
