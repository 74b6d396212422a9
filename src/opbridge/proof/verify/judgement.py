"""Judges one case: compares every output of the engine with both runs of the reference.

An output passes if its error is within the budget that the reference's own error sets. If it is not:

1. *Near ties.* The output is also compared with runs of the reference in which near ties are decided differently, and
   which are equally correct: an element is correct if it agrees with any of them. A reference that knows the float64
   margins of its decisions searches for near ties (:meth:`~opbridge.proof.verify.reference.Runs.near_ties`); otherwise,
   runs on perturbed inputs are used.
2. *Lucky runs.* One run may not show the reference's typical error: the output has few elements, all of its elements
   depend on a few numbers (an image warped by the inverse of a matrix), or there is no more precise reference. So the
   error is also measured on perturbed inputs.

Outputs that depend on random draws are compared by their distribution.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opbridge.proof.verify.compare import Verdict, allclose, error_units, floor_units, is_floating, judge
from opbridge.proof.verify.distribution import compare_runs
from opbridge.proof.verify.figures import condition_text, differences, figures, relative_error
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.perturbed import PERTURBED_RUNS, perturbed_feeds
from opbridge.proof.verify.reference import Feeds, NearTies, Observe, Run, Runs
from opbridge.proof.verify.trace import Status
from opbridge.proof.verify.verification import Comparison

__all__ = ["Judgement"]

_MOST_REPLAYS = 14
_MOST_LUCK = 1e4
_MOST_LUCK_WITHOUT_FLOAT64 = 1e12
_RANDOM_SECONDS = 2.0
_FEWEST_DRAWS, _MOST_DRAWS = 6, 24


@dataclasses.dataclass
class _Output:
    """An output while it is being judged.

    Attributes:
        name: The output's name.
        result: The engine's result.
        run: The run of the reference that the output is compared with.
        units: The smallest error of each element over all runs so far.
        own_units: The reference's own errors, one array per run.
        verdict: The verdict so far.
        by_decision: Whether the output does not fit unless near ties are decided differently.
        own_error: The reference's largest relative error on perturbed inputs, if there were such runs.
    """

    name: str
    result: np.ndarray
    run: Run
    units: np.ndarray | None = None
    own_units: list[np.ndarray] = dataclasses.field(default_factory=list)
    verdict: Verdict = dataclasses.field(default_factory=lambda: Verdict(False, np.inf, 0.0, 0.0, np.inf))
    by_decision: bool = False
    own_error: float = 0.0

    @property
    def own(self) -> np.ndarray:
        """The reference's result in the model's types."""
        return self.run.own[self.name]


class Judgement:
    """Judges the outputs of one case.

    Args:
        reference: Runs the reference again.
        case: The case's name.
        feeds: The inputs.
        run: What the reference computes from them.
        tolerance: The tolerance that replaces the tolerance.
        seed: The seed of perturbed inputs.
        observe: Reads the decisions that the engine takes inside its model; None if they can't be read.

    Attributes:
        thorough: Whether near ties and lucky runs are considered before an output fails, which takes about twenty runs
            of the reference.
    """

    def __init__(
        self,
        reference: Runs,
        case: str,
        feeds: Feeds,
        run: Run,
        tolerance: Tolerance | None,
        seed: int,
        observe: Observe | None = None,
    ) -> None:
        self.reference = reference
        self.case = case
        self.feeds = feeds
        self.base = run
        self.tolerance = tolerance
        self.seed = seed
        self.observe = observe
        self.thorough = True
        self._nearby: list[Run] | None = None

    def compare(self, results: Feeds, again: Callable[[], Feeds]) -> list[Comparison]:
        """Compare the results: one comparison for each expected output and for each unexpected one.

        Args:
            results: The engine's results.
            again: Runs the engine once more on the same inputs, for random outputs.
        """
        found: dict[str, Comparison] = {}
        outputs: list[_Output] = []
        random: list[_Output] = []
        for name, own in self.base.own.items():
            problem = self._form(name, own, results)
            if problem is not None:
                found[name] = problem
            else:
                output = _Output(name, np.asarray(results[name]), self.base)
                (random if name in self.base.random else outputs).append(output)
        for output in outputs:
            self._measure(output, self.base)
        if self.thorough:
            outputs = self._considering_near_ties(outputs)
            self._consider_luck([output for output in outputs if not output.verdict.passed])
        found |= {output.name: self._comparison(output) for output in outputs}
        found |= self._random(random, results, again)
        text = f"{self.reference.name} has no output of this name"
        unexpected = [name for name in results if name not in self.base.own]
        listed = [found[name] for name in self.base.own]
        return listed + [Comparison(name, self.case, "missing", detail=text) for name in unexpected]

    def eager_matches(self, eager: Sequence[np.ndarray]) -> bool | None:
        """Whether the module's outputs agree with the reference's; None if all of them are random."""
        if len(eager) != len(self.base.own):
            return False
        outputs = []
        for (name, own), theirs in zip(self.base.own.items(), eager, strict=True):
            if name in self.base.random:
                continue
            if own.dtype != theirs.dtype or own.ndim != theirs.ndim:
                return False
            outputs.append(_Output(name, theirs, self.base))
            self._measure(outputs[-1], self.base)
        failing = [output for output in outputs if not output.verdict.passed]
        if not failing:
            return True if outputs or not eager else None
        search = self.reference.near_ties(self.feeds, {output.name: output.result for output in failing})
        if search is not None:
            if self._inferred(search, outputs) is not None:
                return True
            self._fold(search.runs(), failing)
        self._consider_luck([output for output in failing if not output.verdict.passed])
        return all(output.verdict.passed for output in failing)

    def _form(self, name: str, own: np.ndarray, results: Feeds) -> Comparison | None:
        """The comparison of an output that is missing or has the wrong dtype or rank; None if it has not."""
        if name not in results:
            known = ", ".join(results) or "none"
            return Comparison(name, self.case, "missing", detail=f"the model has no such output; it has: {known}")
        result = np.asarray(results[name])
        if result.dtype != own.dtype:
            detail = f"the engine gives {result.dtype.name}, {self.reference.name} {own.dtype.name}"
            return Comparison(name, self.case, "dtype", detail=detail)
        if result.ndim != own.ndim:
            return self._other_shape(name, result, own)
        return None

    def _other_shape(self, name: str, result: np.ndarray, own: np.ndarray) -> Comparison:
        detail = f"the engine gives shape {list(result.shape)}, {self.reference.name} {list(own.shape)}"
        if result.ndim != own.ndim and result.size == own.size and not self.case.startswith("example"):
            detail += "; if a size of 1 changes the rank, exclude it with torch.export.Dim(name, min=2)"
        return Comparison(name, self.case, "shape", detail=detail)

    def _measure(self, output: _Output, run: Run) -> None:
        """Fold one run of the reference into the verdict: an element is correct if it agrees with any run."""
        own = run.own[output.name]
        if own.shape != output.result.shape:
            return
        units, own_units = self._units(output, own, run)
        if output.units is None or output.units.shape != units.shape:
            output.units = units
        else:
            output.units = np.minimum(output.units, units)
        output.own_units.append(own_units)
        self._judge(output)

    def _units(self, output: _Output, own: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
        if not is_floating(own.dtype):
            return np.where(output.result == own, 0.0, np.inf), np.zeros(own.shape)
        result64, own64 = output.result.astype(np.float64), own.astype(np.float64)
        if self.tolerance is not None:
            return allclose(result64, own64, self.tolerance.rtol, self.tolerance.atol), np.zeros(own.shape)
        float64 = run.float64[output.name]
        return error_units(result64, own64, float64, own.dtype), error_units(own64, own64, float64, own.dtype)

    def _judge(self, output: _Output) -> None:
        if output.units is None:
            return
        wrong = int((output.units > 1).sum())
        if not is_floating(output.own.dtype):
            detail = f"{wrong} of {output.units.size} elements differ" if wrong else ""
            output.verdict = Verdict(wrong == 0, 0.0, 0.0, 0.0, np.inf if wrong else 0.0, detail)
        elif self.tolerance is not None:
            worst = float(output.units.max(initial=0.0))
            detail = f"{wrong} of {output.units.size} elements are beyond the tolerance" if wrong else ""
            output.verdict = Verdict(wrong == 0, worst, 0.0, 1.0, worst, detail)
        else:
            floor = floor_units(output.own.dtype, self.base.longest_sum)
            output.verdict = judge(output.units, output.own_units, floor)

    def _considering_near_ties(self, outputs: Sequence[_Output]) -> list[_Output]:
        """Accept what follows from near ties that were decided differently.

        If the engine's own decisions are known, all outputs must follow from them.
        """
        failing = [output for output in outputs if not output.verdict.passed]
        if not failing:
            return list(outputs)
        search = self.reference.near_ties(self.feeds, {output.name: output.result for output in failing})
        followed = None if search is None or self.observe is None else search.followed(self.observe)
        if followed is not None:
            return [self._following(followed, output) for output in outputs]
        inferred = None if search is None else self._inferred(search, outputs)
        if inferred is not None:
            return inferred
        self._fold(self._nearby_decisions(failing) if search is None else search.runs(), failing)
        for output in failing:
            reason = "" if search is None else search.objections.get(output.name, "")
            if reason and not output.verdict.passed:
                output.verdict = dataclasses.replace(output.verdict, detail=reason)
        return list(outputs)

    def _fold(self, runs: Iterator[Run], failing: Sequence[_Output]) -> None:
        """Compare failing outputs with further runs of the reference, until all of them pass."""
        for count, run in enumerate(runs):
            for output in failing:
                if not output.verdict.passed:
                    self._measure(output, run)
                    output.by_decision = output.verdict.passed
            if count + 1 >= _MOST_REPLAYS or all(output.verdict.passed for output in failing):
                break

    def _inferred(self, search: NearTies, outputs: Sequence[_Output]) -> list[_Output] | None:
        """The outputs compared with a run whose selection they show; None if no such run has all of them."""
        for run in search.inferred():
            found = [self._following(run, output) for output in outputs]
            if all(output.verdict.passed for output in found):
                return found
        return None

    def _following(self, run: Run, output: _Output) -> _Output:
        """The output compared with the run that takes the engine's decisions, and with no other."""
        found = _Output(output.name, output.result, run, by_decision=not output.verdict.passed)
        self._measure(found, run)
        return found

    def _nearby_decisions(self, failing: Sequence[_Output]) -> Iterator[Run]:
        """The runs that replace the search for near ties: one with the float64 run's decisions, and perturbed runs."""
        discrete = {output.name for output in failing if not is_floating(output.own.dtype)}
        if discrete:
            decided = {
                name: self.base.float64[name] if name in discrete else own for name, own in self.base.own.items()
            }
            yield dataclasses.replace(self.base, own=decided)
        yield from self._runs_nearby()

    def _runs_nearby(self) -> list[Run]:
        """The reference's runs on inputs that differ by a rounding error; inputs that it rejects are left out."""
        if self._nearby is None:
            self._nearby = []
            for feeds in perturbed_feeds(self.feeds, self.seed):
                run = self._attempt(feeds)
                if run is not None:
                    self._nearby.append(run)
        return self._nearby

    def _attempt(self, feeds: Feeds, perturbing: np.random.Generator | None = None) -> Run | None:
        try:
            return self.reference.run(feeds, perturbing=perturbing)
        except Exception:
            return None

    def _consider_luck(self, failing: Sequence[_Output]) -> None:
        """Measure the reference's error on perturbed inputs, if one run can't show a typical error.

        Weights are perturbed too, because a solve with a constant matrix would otherwise seem well-conditioned.
        """
        lucky = [output for output in failing if self._may_be_luck(output)]
        if not lucky:
            return
        random = np.random.default_rng(self.seed)
        tried = [self._attempt(feeds, random) for feeds in perturbed_feeds(self.feeds, self.seed, PERTURBED_RUNS)]
        runs = [run for run in tried if run is not None]
        for run in runs:
            for output in lucky:
                own = run.own[output.name]
                if own.shape == output.own.shape == output.result.shape:
                    own64, float64 = own.astype(np.float64), _comparable(output, run)
                    output.own_units.append(self._as_base_units(output, own64, float64))
                    output.own_error = max(output.own_error, relative_error(own64, float64))
                    self._judge(output)

    def _may_be_luck(self, output: _Output) -> bool:
        if not is_floating(output.own.dtype) or self.tolerance is not None or output.units is None:
            return False
        is_trusted = bool(output.run.trusted[output.name].all())
        return output.verdict.ratio < (_MOST_LUCK if is_trusted else _MOST_LUCK_WITHOUT_FLOAT64)

    def _as_base_units(self, output: _Output, own: np.ndarray, float64: np.ndarray) -> np.ndarray:
        """The error of a perturbed run, in the units of the base run."""
        base_own, base_float64 = output.own.astype(np.float64), output.run.float64[output.name]
        with np.errstate(invalid="ignore"):
            shifted = base_float64 + (own - float64)
        return error_units(np.where(np.isfinite(shifted), shifted, base_own), base_own, base_float64, output.own.dtype)

    def _comparison(self, output: _Output) -> Comparison:
        if output.result.shape != output.own.shape and not output.verdict.passed:
            return self._other_shape(output.name, output.result, output.own)
        max_abs, max_rel = differences(output.result, output.own)
        verdict = output.verdict
        equal = output.result.shape == output.own.shape and output.result.tobytes() == output.own.tobytes()
        status: Status = "decision" if output.by_decision else "equal" if equal else "within budget"
        tie = "differs only by near ties decided differently" if verdict.passed and output.by_decision else ""
        measured = self._statistics(output)
        condition = ""
        if measured.get("ill_conditioned"):
            condition = condition_text(output.own.dtype, measured["torch_relative_error"], self.reference.name)
        return Comparison(
            output=output.name,
            case=self.case,
            status=status if verdict.passed else "differs",
            max_abs=max_abs,
            max_rel=max_rel,
            engine_error=verdict.engine_error,
            torch_error=verdict.torch_error,
            ratio=verdict.ratio,
            budget=verdict.budget,
            detail="; ".join(filter(None, (tie or verdict.detail, condition))),
            **measured,
        )

    def _statistics(self, output: _Output) -> Mapping[str, Any]:
        """Extra error statistics of a floating-point output; empty if a tolerance is given."""
        comparable = output.units is not None and output.units.shape == output.own.shape == output.result.shape
        if not is_floating(output.own.dtype) or not comparable or self.tolerance is not None:
            return {}
        assert output.units is not None
        float64 = output.run.float64[output.name]
        own_error = max(output.own_error, relative_error(output.own, float64))
        return figures(output.result, output.own, float64, (output.units, output.own_units[0]), own_error)

    def _random(self, outputs: Sequence[_Output], results: Feeds, again: Callable[[], Feeds]) -> dict[str, Comparison]:
        """Compare random outputs by distribution, on as many runs as fit in a few seconds."""
        if not outputs:
            return {}
        engine, own = [results], [self.base.own]
        start = time.perf_counter()
        while len(engine) < _MOST_DRAWS:
            if len(engine) >= _FEWEST_DRAWS and time.perf_counter() - start > _RANDOM_SECONDS:
                break
            engine.append(again())
            own.append(self.reference.draw(self.feeds, len(own)))
        return {output.name: self._random_comparison(output.name, engine, own) for output in outputs}

    def _random_comparison(self, name: str, engine: Sequence[Feeds], own: Sequence[Feeds]) -> Comparison:
        theirs = [np.asarray(run[name]) for run in engine]
        mine = [np.asarray(run[name]) for run in own]
        shapes = {array.shape for array in mine}
        if len(shapes) == 1 and {array.shape for array in theirs} != shapes:
            return self._other_shape(name, theirs[0], mine[0])
        size = min(array.size for array in (*theirs, *mine))
        reason = compare_runs([a.reshape(-1)[:size] for a in theirs], [a.reshape(-1)[:size] for a in mine], self.seed)
        detail = reason or f"same distribution in {len(theirs)} runs of each"
        return Comparison(name, self.case, "differs" if reason else "random", detail=detail)


def _comparable(output: _Output, run: Run) -> np.ndarray:
    """The reference of a perturbed run's own result: its float64 result, or if untrusted that of the output's run."""
    trusted = output.run.trusted[output.name]
    float64 = run.float64[output.name]
    return float64 if trusted.all() else np.where(trusted, float64, output.run.float64[output.name])
