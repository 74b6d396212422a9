"""One case judged: every output of the engine against both reference runs, near ties and random draws included."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from opbridge.proof.verify.compare import Verdict, allclose, error_units, floor_units, is_floating, judge
from opbridge.proof.verify.decisions import Deciding, Exactness, plans, visible_choice
from opbridge.proof.verify.distribution import compare_runs
from opbridge.proof.verify.figures import condition_text, differences, figures, relative_error
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.reference import PairRun, Reference
from opbridge.proof.verify.verification import Comparison

__all__ = ["Judgement", "jiggled"]

_MOST_REPLAYS = 12
_FEW_ELEMENTS = 1024
_JIGGLES = 5
_SURVEYS = 4
_MOST_LUCK = 1e4
_MOST_LUCK_IN_DOUBLE = 1e12
_RANDOM_SECONDS = 2.0
_FEWEST_DRAWS, _MOST_DRAWS = 6, 24


@dataclasses.dataclass
class _Output:
    """An output while it is being judged: the smallest error of each element over all replays so far.

    ``own_error`` is PyTorch's largest relative error on inputs moved by one rounding, if there were such runs.
    """

    index: int
    name: str
    result: np.ndarray
    own: np.ndarray
    units: np.ndarray | None = None
    torch_units: list[np.ndarray] = dataclasses.field(default_factory=list)
    verdict: Verdict = dataclasses.field(default_factory=lambda: Verdict(False, np.inf, 0.0, 0.0, np.inf))
    by_decision: bool = False
    own_error: float = 0.0

    @property
    def is_double(self) -> bool:
        """Whether it is float64, so that the reference is no wider than PyTorch's own run."""
        return self.own.dtype == np.float64


class Judgement:
    """Judges the outputs of one case.

    Args:
        reference: For replays.
        case: The case's name.
        flat: Its inputs, flattened.
        run: Both reference runs on them.
        tolerance: Instead of the error budget.
        seed: Of random draws and jiggled inputs.

    Attributes:
        run_seconds: Time spent inside PyTorch.
        thorough: Whether near ties and lucky runs are considered before an output is called wrong, which takes some
            twenty runs of PyTorch.
    """

    def __init__(
        self, reference: Reference, case: str, flat: list[Any], run: PairRun, tolerance: Tolerance | None, seed: int
    ) -> None:
        self.reference = reference
        self.case = case
        self.flat = flat
        self.base = run
        self.tolerance = tolerance
        self.seed = seed
        self.run_seconds = 0.0
        self.thorough = True

    def compare(
        self, names: Sequence[str], results: Mapping[str, np.ndarray], again: Callable[[], Mapping[str, np.ndarray]]
    ) -> list[Comparison]:
        """One comparison per expected output, and one per output that nobody expects.

        Args:
            names: The outputs in order.
            results: What the engine gave.
            again: Runs the engine once more on the same inputs, for random outputs.
        """
        found: dict[str, Comparison] = {}
        outputs: list[_Output] = []
        random: list[_Output] = []
        for index, name in enumerate(names):
            own = to_numpy(self.base.own[index])
            problem = self._form(name, own, results)
            if problem is not None:
                found[name] = problem
            else:
                output = _Output(index, name, np.asarray(results[name]), own)
                (random if self.base.random[index] else outputs).append(output)
        for output in outputs:
            self._measure(output, self.base)
        if self.thorough:
            self._consider_decisions([output for output in outputs if not output.verdict.passed])
            self._consider_luck([output for output in outputs if not output.verdict.passed])
        found |= {output.name: self._comparison(output) for output in outputs}
        found |= self._random(random, results, again)
        listed = [found[name] for name in names]
        unexpected = [name for name in results if name not in names]
        text = "the model has an output of this name, the captured program has not"
        return listed + [Comparison(name, self.case, "missing", detail=text) for name in unexpected]

    def eager_matches(self, eager: Sequence[Any]) -> bool | None:
        """Whether the module's outputs are those of the captured graph; random outputs tell nothing."""
        if len(eager) != len(self.base.own):
            return False
        outputs = [i for i, random in enumerate(self.base.random) if not random]
        for index in outputs:
            mine, theirs = to_numpy(self.base.own[index]), to_numpy(eager[index])
            if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
                return False
            output = _Output(index, "", theirs, mine)
            self._measure(output, self.base)
            if not output.verdict.passed:
                return False
        return True if outputs or not eager else None

    def _form(self, name: str, own: np.ndarray, results: Mapping[str, np.ndarray]) -> Comparison | None:
        """What is wrong with an output before any number is looked at."""
        if name not in results:
            known = ", ".join(results) or "none"
            return Comparison(name, self.case, "missing", detail=f"the model has no such output; it has: {known}")
        result = np.asarray(results[name])
        if result.dtype != own.dtype:
            detail = f"the engine gives {result.dtype.name}, PyTorch {own.dtype.name}"
            return Comparison(name, self.case, "dtype", detail=detail)
        if result.ndim != own.ndim:
            return Comparison(name, self.case, "shape", detail=_shapes(result, own))
        return None

    def _measure(self, output: _Output, run: PairRun) -> None:
        """Let one run speak: an element counts as right if any run has it."""
        own = to_numpy(run.own[output.index])
        if own.shape != output.result.shape:
            return
        units, torch_units = self._units(output, own, run)
        if output.units is None or output.units.shape != units.shape:
            output.units = units
        else:
            output.units = np.minimum(output.units, units)
        output.torch_units.append(torch_units)
        self._judge(output)

    def _units(self, output: _Output, own: np.ndarray, run: PairRun) -> tuple[np.ndarray, np.ndarray]:
        if not is_floating(own.dtype):
            return np.where(output.result == own, 0.0, np.inf), np.zeros(own.shape)
        result64, own64 = output.result.astype(np.float64), own.astype(np.float64)
        if self.tolerance is not None:
            return allclose(result64, own64, self.tolerance.rtol, self.tolerance.atol), np.zeros(own.shape)
        wide = np.asarray(to_numpy(run.wide[output.index]), np.float64)
        torch_units = error_units(own64, own64, wide, own.dtype)
        return error_units(result64, own64, wide, own.dtype), torch_units

    def _judge(self, output: _Output) -> None:
        if output.units is None:
            return
        if not is_floating(output.own.dtype):
            wrong = int(np.count_nonzero(output.units))
            detail = f"{wrong} of {output.units.size} elements differ" if wrong else ""
            output.verdict = Verdict(wrong == 0, 0.0, 0.0, 0.0, np.inf if wrong else 0.0, detail)
        elif self.tolerance is not None:
            worst = float(output.units.max(initial=0.0))
            wrong = int((output.units > 1).sum())
            detail = f"{wrong} of {output.units.size} elements are beyond the tolerance" if wrong else ""
            output.verdict = Verdict(wrong == 0, worst, 0.0, 1.0, worst, detail)
        else:
            floor = floor_units(output.own.dtype, self.base.longest_sum)
            output.verdict = judge(output.units, output.torch_units, floor)

    def _replay(
        self,
        observer: Deciding | None = None,
        flat: list[Any] | None = None,
        moved: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> PairRun:
        run = self.reference.run(self.flat if flat is None else flat, seed=self.seed, observer=observer, moved=moved)
        self.run_seconds += run.seconds
        return run

    def _consider_decisions(self, failing: Sequence[_Output]) -> None:
        """Accept what follows from near ties decided otherwise."""
        if not failing:
            return
        choices = [
            choice
            for output in failing
            if not is_floating(output.own.dtype)
            if (choice := visible_choice(self.reference.output_nodes[output.index], output.result)) is not None
        ]
        seen: dict[tuple[str, int], Exactness] = {}
        random = torch.Generator().manual_seed(self.seed)
        for _ in range(_SURVEYS):
            self._replay(Deciding(seen=seen), [jiggled(value, random) for value in self.flat])
            if not seen:
                return
        search = Deciding(choices=choices, search=True, seen=seen)
        self._measure_decided(failing, self._replay(search))
        upstream = frozenset().union(*(self.reference.upstream(output.index) for output in failing))
        near = {k: v for k, v in search.near_ties.items() if k.split("/")[0].split("#")[0] in upstream}
        for count, variants in enumerate(plans(near)):
            if count >= _MOST_REPLAYS or all(output.verdict.passed for output in failing):
                break
            self._measure_decided(failing, self._replay(Deciding(variants, choices, seen=seen)))
        for output in failing:
            reasons = [search.refused[choice.key] for choice in choices if choice.key in search.refused]
            if reasons and not output.verdict.passed and not is_floating(output.own.dtype):
                output.verdict = dataclasses.replace(output.verdict, detail=reasons[0])

    def _measure_decided(self, failing: Sequence[_Output], run: PairRun) -> None:
        for output in failing:
            if not output.verdict.passed:
                self._measure(output, run)
                output.by_decision = output.verdict.passed

    def _consider_luck(self, failing: Sequence[_Output]) -> None:
        """See PyTorch's error on more inputs, where an output is too small for one run to show a typical one.

        In float64, where there is no wider reference, this is all that shows how far a rounding error may carry.
        """
        lucky = [
            output
            for output in failing
            if is_floating(output.own.dtype)
            and self.tolerance is None
            and output.units is not None
            and output.verdict.ratio < (_MOST_LUCK_IN_DOUBLE if output.is_double else _MOST_LUCK)
            and (output.is_double or output.own.size <= _FEW_ELEMENTS)
        ]
        random = torch.Generator().manual_seed(self.seed)
        # Of inputs alone, a solve with a constant matrix would seem well-conditioned.
        moved = (lambda value: jiggled(value, random)) if any(output.is_double for output in lucky) else None
        for _ in range(_JIGGLES if lucky else 0):
            run = self._replay(flat=[jiggled(value, random) for value in self.flat], moved=moved)
            for output in lucky:
                own = to_numpy(run.own[output.index])
                if own.shape == output.result.shape:
                    exact = self.base if output.is_double else run
                    own64, wide = own.astype(np.float64), np.asarray(to_numpy(exact.wide[output.index]), np.float64)
                    output.torch_units.append(self._as_base_units(output, own64, wide))
                    output.own_error = max(output.own_error, relative_error(own64, wide))
                    self._judge(output)

    def _as_base_units(self, output: _Output, own: np.ndarray, wide: np.ndarray) -> np.ndarray:
        """The error of a jiggled run, in the units of the base run."""
        base_own = output.own.astype(np.float64)
        base_wide = np.asarray(to_numpy(self.base.wide[output.index]), np.float64)
        with np.errstate(invalid="ignore"):
            moved = base_wide + (own - wide)
        return error_units(np.where(np.isfinite(moved), moved, base_own), base_own, base_wide, output.own.dtype)

    def _comparison(self, output: _Output) -> Comparison:
        if output.result.shape != output.own.shape and not output.verdict.passed:
            return Comparison(output.name, self.case, "shape", detail=_shapes(output.result, output.own))
        max_abs, max_rel = differences(output.result, output.own)
        verdict = output.verdict
        equal = output.result.shape == output.own.shape and output.result.tobytes() == output.own.tobytes()
        status = "equal" if equal else "decision" if output.by_decision else "within budget"
        tie = "differs only by near ties decided otherwise" if verdict.passed and output.by_decision else ""
        measured = self._figures(output)
        condition = ""
        if measured.get("ill_conditioned"):
            condition = condition_text(output.own.dtype, measured["torch_relative_error"])
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

    def _figures(self, output: _Output) -> Mapping[str, Any]:
        """What is told of a floating-point output besides; with a tolerance nothing, because its units are others."""
        comparable = output.units is not None and output.units.shape == output.own.shape == output.result.shape
        if not is_floating(output.own.dtype) or not comparable or self.tolerance is not None:
            return {}
        assert output.units is not None
        wide = np.asarray(to_numpy(self.base.wide[output.index]), np.float64)
        own_error = max(output.own_error, relative_error(output.own, wide))
        return figures(output.result, output.own, wide, (output.units, output.torch_units[0]), own_error)

    def _random(
        self,
        outputs: Sequence[_Output],
        results: Mapping[str, np.ndarray],
        again: Callable[[], Mapping[str, np.ndarray]],
    ) -> dict[str, Comparison]:
        """Compare random outputs by distribution, on as many runs as a few seconds hold."""
        if not outputs:
            return {}
        runs: list[Mapping[str, np.ndarray]] = [results]
        owns = [self.base]
        start = time.perf_counter()
        while len(runs) < _MOST_DRAWS:
            if len(runs) >= _FEWEST_DRAWS and time.perf_counter() - start > _RANDOM_SECONDS:
                break
            runs.append(again())
            owns.append(self.reference.run(self.flat, seed=self.seed + len(owns), wide=False))
            self.run_seconds += owns[-1].seconds
        return {output.name: self._random_comparison(output, runs, owns) for output in outputs}

    def _random_comparison(
        self, output: _Output, runs: Sequence[Mapping[str, np.ndarray]], owns: Sequence[PairRun]
    ) -> Comparison:
        engine = [np.asarray(run[output.name]) for run in runs]
        torch_runs = [to_numpy(run.own[output.index]) for run in owns]
        shapes = {array.shape for array in torch_runs}
        if len(shapes) == 1 and {array.shape for array in engine} != shapes:
            return Comparison(output.name, self.case, "shape", detail=_shapes(engine[0], torch_runs[0]))
        size = min(array.size for array in (*engine, *torch_runs))
        reason = compare_runs(
            [array.reshape(-1)[:size] for array in engine], [a.reshape(-1)[:size] for a in torch_runs], self.seed
        )
        detail = reason or f"same distribution in {len(runs)} runs of each"
        return Comparison(output.name, self.case, "differs" if reason else "random", detail=detail)


def _shapes(result: np.ndarray, own: np.ndarray) -> str:
    return f"the engine gives shape {list(result.shape)}, PyTorch {list(own.shape)}"


def jiggled(value: Any, random: torch.Generator) -> Any:
    """A floating-point input moved by one rounding error."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return value
    noise = torch.randn(value.shape, generator=random, dtype=torch.float64)
    return (value.double() * (1 + torch.finfo(value.dtype).eps * noise)).to(value.dtype)
