"""``verify`` for what was made of an ONNX model: that an engine computes what the original computes."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from opbridge.engines.base import Engine
from opbridge.engines.process.crash import Crash
from opbridge.errors import EngineCrashError, InputError, OpbridgeError
from opbridge.proof.bisect.bisection_onnx import ModelInside, ModelInsides
from opbridge.proof.bisect.crash_site import CrashSites
from opbridge.proof.verify.journal import EngineJournal
from opbridge.proof.verify.modes import Given, named_cases
from opbridge.proof.verify.onnx_further import ModelFurther
from opbridge.proof.verify.onnx_inputs import OnnxInputs
from opbridge.proof.verify.onnx_judgement import ModelJudgement
from opbridge.proof.verify.onnx_reference import Candidate, Feeds, OriginalRun, OriginalRuns
from opbridge.proof.verify.options import Tolerance, VerifyOptions
from opbridge.proof.verify.repeats import repeated
from opbridge.proof.verify.verification import NOT_VERIFIED, CaseResult, Comparison, Verification
from opbridge.proof.verify.widened_model import longest_sum, random_outputs

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.engines.base import Session

__all__ = ["verify_model"]

_MOST_TRIALS = 16
_DEFAULTS = VerifyOptions()


def verify_model(
    original: ir.Model,
    engine: Engine,
    load: Callable[[], Session],
    *,
    label: str,
    options: VerifyOptions = _DEFAULTS,
    examples: Mapping[str, np.ndarray] | None = None,
    own: Sequence[Candidate] | None = None,
    inside: ModelInside | None = None,
) -> Verification:
    """Compare an engine's model with the original, on fresh inputs at several sizes of the dynamic dimensions.

    Args:
        original: The model that was given.
        engine: The engine.
        load: Loads the engine's model.
        label: What the engine is called in the result.
        options: How to verify.
        examples: Arrays by input name that the original takes, if some are known.
        own: Who may run the original in its own types; by default every candidate.
        inside: The engine's model, to look inside of; without it, nothing is bisected or traced.

    Returns:
        What was found. Where the original runs nowhere, the verdict is "not verified".

    Raises:
        InputError: Inputs or tolerances can't be used.
    """
    started = time.perf_counter()
    tolerance = options.tolerance
    seed = options.seed
    with tempfile.TemporaryDirectory(prefix="opbridge-") as folder:
        try:
            session = load()
        except OpbridgeError as error:
            crashes = CrashSites().locate("", error)
            message = str(crashes[0]) if crashes else error.message
            return Verification(label, "error", (), (), {}, seed, error=message, crashes=crashes)
        try:
            with OriginalRuns(original, engine, Path(folder), own) as runs:
                verifier = _Verifier(original, runs, session, seed, tolerance)
                if inside is not None:
                    verifier.look_inside(inside, bisect=options.bisect, trace=options.trace)
                problem = verifier.verify(options, examples, options.journal.of_engine(label))
                verifier.further.run(options.modes, options.small)
        finally:
            session.close()
    if problem:
        return Verification(label, NOT_VERIFIED, (), (), {}, seed, error=problem, reference="nothing")
    found = verifier.verification(label, runs.label, time.perf_counter() - started)
    return verifier.further.completed(found, options.modes)


class _Verifier:
    """One verification at work."""

    def __init__(
        self, original: ir.Model, runs: OriginalRuns, session: Session, seed: int, tolerance: Tolerance | None
    ) -> None:
        self._original = original
        self._runs = runs
        self._session = session
        self._seed = seed
        self._tolerance = tolerance
        self._random = random_outputs(original)
        self._longest_sum = longest_sum(original)
        self._run_seconds = 0.0
        self._notes: list[str] = []
        self._results: list[CaseResult] = []
        self._comparisons: list[Comparison] = []
        self._resumed = 0
        self._insides: ModelInsides | None = None
        self._crashes: list[Crash] = []
        self._crash_sites = CrashSites()
        self.further = ModelFurther(self._run, self._engine, self._judgement, self._random, seed)

    def look_inside(self, inside: ModelInside, *, bisect: bool, trace: bool) -> None:
        """Bisect the cases that fail, and trace the first, from now on."""
        self._insides = ModelInsides(inside, self._runs, self._tolerance, self._seed, bisects=bisect, traces=trace)

    def verify(self, options: VerifyOptions, examples: Mapping[str, np.ndarray] | None, journal: EngineJournal) -> str:
        """Check every case. Returns why there was none."""
        if options.inputs is not None:
            return self._given(options.inputs, journal)
        try:
            inputs = OnnxInputs(self._original, examples)
        except InputError as error:
            return error.message
        self.further.inputs = inputs
        base = self._base(inputs)
        if base is None:
            reasons = "; ".join(dict.fromkeys(self._runs.problems)) or "it refuses every input that was tried"
            return f"The original model runs nowhere, so there is nothing to compare with: {reasons}"
        sizes, boldness, feeds = base
        self._check("first sizes", sizes, feeds, self._run(feeds))
        for number, direction in enumerate((1, -1), 2):
            self._at_other_sizes(f"sizes {number}", inputs, sizes, boldness, direction)
        if options.modes.edge_sizes:
            self._at_edges(inputs, sizes, boldness)
        return ""

    def _at_edges(self, inputs: OnnxInputs, base: Mapping[str, int], boldness: int) -> None:
        for name, sizes in inputs.edges(base):
            feeds = inputs.feeds(sizes, self._seed, boldness)
            try:
                run = self._run(feeds)
            except OpbridgeError as error:
                self._note(f"the original refuses {name.removeprefix('size ')}: {error.message}")
                continue
            self._check(name, sizes, feeds, run)

    def _note(self, text: str) -> None:
        """Say something of all cases, with the first."""
        first = self._results[0]
        self._results[0] = dataclasses.replace(first, notes=(*first.notes, text))

    def _given(self, cases: Given, journal: EngineJournal) -> str:
        with contextlib.suppress(InputError):  # The model does not say enough of them to make others smaller.
            self.further.inputs = OnnxInputs(self._original)
        while self._runs.load_next():
            journal.again()
            try:
                for name, feeds in named_cases(cases):
                    passed = journal.begin(name, feeds)
                    if passed is None:
                        self._check(name, {}, feeds, self._run(feeds))
                        journal.reference = self._runs.label
                        journal.end(feeds, self._results[-1], [c for c in self._comparisons if c.case == name])
                    else:
                        self._resumed += 1
                        self._results.append(passed.result)
                        self._comparisons += passed.comparisons
                return ""
            except OpbridgeError as error:
                # The next candidate begins again with the first case.
                self._results.clear()
                self._comparisons.clear()
                self._resumed = 0
                self._crashes.clear()
                self.further.forget()
                if self._insides is not None:
                    self._insides.forget()
                self._runs.problems.append(error.message)
        return "The original model runs nowhere on the given inputs: " + "; ".join(dict.fromkeys(self._runs.problems))

    def _base(self, inputs: OnnxInputs) -> tuple[dict[str, int], int, Feeds] | None:
        """Sizes and values that the original takes, in the first place where it runs."""
        while self._runs.load_next():
            for sizes, boldness, feeds in _trials(inputs, self._seed):
                try:
                    outputs = self._own(feeds)
                except OpbridgeError as error:
                    if isinstance(error, EngineCrashError):
                        self._runs.problems.append(error.message)
                        break
                    self._runs.problems[:] = [*self._runs.problems[-3:], error.message]
                    continue
                if _says_something(outputs):
                    return sizes, boldness, feeds
        return None

    def _at_other_sizes(
        self, name: str, inputs: OnnxInputs, base: Mapping[str, int], boldness: int, direction: int
    ) -> None:
        refused: list[str] = []
        for sizes in inputs.other_sizes(base, direction):
            feeds = inputs.feeds(sizes, self._seed + direction, boldness)
            try:
                outputs = self._own(feeds)
            except OpbridgeError as error:
                text = ", ".join(f"{key}={value}" for key, value in sizes.items())
                refused.append(f"the original refuses {text}: {error.message}")
                continue
            if _says_something(outputs):
                self._check(name, sizes, feeds, self._run(feeds))
                return
        if refused:
            self._note(refused[0])

    def _own(self, feeds: Feeds) -> Feeds:
        return self._timed(lambda: self._runs.own(feeds))

    def _run(self, feeds: Feeds) -> OriginalRun:
        started = time.perf_counter()
        try:
            return self._runs.run(feeds)
        finally:
            self._run_seconds += time.perf_counter() - started

    def _engine(self, feeds: Feeds) -> Feeds:
        return self._timed(lambda: self._session.run(feeds))

    def _timed(self, run: Callable[[], Feeds]) -> Feeds:
        started = time.perf_counter()
        try:
            return run()
        finally:
            self._run_seconds += time.perf_counter() - started

    def _check(self, name: str, sizes: Mapping[str, int], feeds: Feeds, run: OriginalRun) -> None:
        """Run the engine on one case and add what came out."""
        try:
            before = self._run_seconds
            results = self._engine(feeds)
            took = self._run_seconds - before
            judgement = self._judgement(name, feeds, run)
            found: Sequence[Comparison] = judgement.compare(results, self._engine)
            if not self._results and not self._random and all(comparison.passed for comparison in found):
                results, found = repeated(
                    lambda: self._engine(feeds),
                    lambda others: judgement.compare(others, self._engine),
                    results,
                    found,
                    took,
                )
        except OpbridgeError as error:
            crashes = self._crash_sites.locate(name, error, feeds)
            self._crashes += crashes
            message = str(crashes[0]) if crashes else error.message
            self._results.append(CaseResult(name, dict(sizes), "error", error=message))
            self.further.saw(name, feeds, "error")
            return
        passed = all(comparison.passed for comparison in found)
        self._comparisons += found
        self._results.append(CaseResult(name, dict(sizes), "passed" if passed else "failed"))
        self.further.saw(name, feeds, self._results[-1].verdict)
        if self._insides is not None:
            failing = [comparison.output for comparison in found if not comparison.passed]
            self._run_seconds += self._insides.look(name, feeds, results, failing, self._engine)

    def _judgement(self, case: str, feeds: Feeds, run: OriginalRun) -> ModelJudgement:
        return ModelJudgement(case, feeds, run, self._run, self._random, self._longest_sum, self._tolerance, self._seed)

    def verification(self, label: str, reference: str, seconds: float) -> Verification:
        """All that was found."""
        verdicts = {case.verdict for case in self._results}
        return Verification(
            engine=label,
            verdict="error" if "error" in verdicts else "passed" if verdicts == {"passed"} else "failed",
            cases=tuple(self._results),
            comparisons=tuple(self._comparisons),
            seconds={"runs": self._run_seconds, "overhead": seconds - self._run_seconds},
            seed=self._seed,
            error=next((case.error for case in self._results if case.error), None),
            reference=reference,
            departures=() if self._insides is None else tuple(self._insides.departures),
            traces=() if self._insides is None else tuple(self._insides.traces),
            crashes=tuple(self._crashes),
            tolerance=None if self._tolerance is None else dataclasses.asdict(self._tolerance),
            resumed=self._resumed,
        )


def _trials(inputs: OnnxInputs, seed: int) -> Iterator[tuple[dict[str, int], int, Feeds]]:
    count = 0
    for sizes in inputs.first_sizes():
        for boldness in inputs.boldnesses():
            count += 1
            if count > _MOST_TRIALS:
                return
            yield sizes, boldness, inputs.feeds(sizes, seed, boldness)


def _says_something(outputs: Feeds) -> bool:
    """Whether some output has an element that is not NaN: the others compare equal with anything alike."""
    arrays = [np.asarray(array) for array in outputs.values()]
    return any(array.size and not (array.dtype.kind == "f" and np.isnan(array).all()) for array in arrays)
