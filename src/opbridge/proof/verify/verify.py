"""Stage 7: ``verify`` that an engine computes what the reference computes, on fresh inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from opbridge.engines.process.crash import Crash
from opbridge.errors import OpbridgeError
from opbridge.proof.bisect.crash_site import CrashSites
from opbridge.proof.bisect.intermediate_checks import IntermediateChecks, ObservableModel
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.extra_checks import ExtraChecks
from opbridge.proof.verify.journal import Passed
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import REQUIRE
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference import Case, Feeds, Reference, Restart, Unverifiable
from opbridge.proof.verify.repeats import repeated
from opbridge.proof.verify.special import judged_by_kind
from opbridge.proof.verify.verification import (
    NOT_VERIFIED,
    OUTSIDE,
    CaseResult,
    CaseVerdict,
    Comparison,
    Verification,
    outside_text,
)

__all__ = ["RunsFeeds", "not_loaded", "verify"]

_DEFAULTS = VerifyOptions()
_WORST_FIRST: tuple[CaseVerdict, ...] = ("error", "failed", NOT_VERIFIED, OUTSIDE, "passed")


class RunsFeeds(Protocol):
    """The part of a session that verification uses."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See :meth:`opbridge.engines.base.Session.run`."""


def verify(
    reference: Reference,
    session: RunsFeeds,
    *,
    engine: str,
    options: VerifyOptions = _DEFAULTS,
    observable: ObservableModel | None = None,
) -> Verification:
    """Compare an engine's results with the reference's, on fresh inputs at several sizes of the dynamic dimensions.

    Args:
        reference: The reference.
        session: The model in the engine.
        engine: The engine's name in the result.
        options: The options.
        observable: The engine's model, whose intermediate values are read; if None, nothing is bisected or traced.

    Returns:
        The result. If the engine fails, the case has the verdict "error", and no exception is raised. If no engine runs
        the reference, the verdict is "not verified".

    Raises:
        InputError: The options can't be used.
    """
    start = time.perf_counter()
    intermediates = IntermediateChecks(observable, reference, options)
    verifier = _Verifier(reference, session, options, intermediates)
    with contextlib.closing(intermediates):
        try:
            verifier.run(engine)
        except Unverifiable as error:
            reason = str(error)
            return Verification(engine, NOT_VERIFIED, (), (), {}, options.seed, error=reason, reference="nothing")
    return verifier.extra.completed(verifier.verification(engine, time.perf_counter() - start), options.modes)


def not_loaded(engine: str, error: OpbridgeError, seed: int) -> Verification:
    """The verification of an engine that did not load the model.

    Args:
        engine: The engine's name in the result.
        error: The error that loading raised.
        seed: The seed of the inputs that would have been used.
    """
    crashes = CrashSites().locate("", error)
    message = str(crashes[0]) if crashes else error.message
    return Verification(engine, "error", (), (), {}, seed, error=message, crashes=crashes)


class _Verifier:
    """The state of one verification."""

    def __init__(
        self, reference: Reference, session: RunsFeeds, options: VerifyOptions, intermediates: IntermediateChecks
    ) -> None:
        self.reference = reference
        self.session = session
        self.options = options
        self.intermediates = intermediates
        self.extra = ExtraChecks(reference, self.run_engine, options)
        self.crash_sites = CrashSites(intermediates.source_of)
        self.run_seconds = 0.0
        self.results: list[CaseResult] = []
        self.comparisons: list[Comparison] = []
        self.crashes: list[Crash] = []
        self.resumed = 0

    def run(self, engine: str) -> None:
        """Check every case, then run the extra checks."""
        journal = self.options.journal.of_engine(engine, self.reference.identity)
        for item in self.reference.cases(self.options, journal):
            if isinstance(item, Case) and item.run.nan:
                self.results.append(_outside(item))
            elif isinstance(item, Case):
                result, found = self.check(item)
                journal.reference = self.reference.identity
                journal.end(item.feeds, result, found)
                self.extra.add(item, result)
            elif isinstance(item, Passed):
                self.resumed += 1
                self.results.append(item.result)
                self.comparisons += item.comparisons
            elif isinstance(item, Restart):
                self.forget()
            else:
                self.results.append(item)
        modes = self.options.modes
        self.extra.run(modes, self.options.small)
        for kind, feeds, failing in self.extra.differing_special_values() if modes.special_values == REQUIRE else ():
            self.bisect_special(kind, feeds, failing)

    def forget(self) -> None:
        """Drop the results of all cases."""
        self.results.clear()
        self.comparisons.clear()
        self.crashes.clear()
        self.resumed = 0
        self.extra.forget()
        self.intermediates.forget()

    def verification(self, engine: str, seconds: float) -> Verification:
        """The result of all cases; ``seconds`` is the time of the verification."""
        results = [*self.results]
        if results and self.reference.notes:
            results[0] = dataclasses.replace(results[0], notes=(*results[0].notes, *self.reference.notes))
        verdicts = {case.verdict for case in results}
        worst: CaseVerdict = next((verdict for verdict in _WORST_FIRST if verdict in verdicts), "failed")
        matches = [case.eager_matches for case in results if case.eager_matches is not None]
        run_seconds = self.run_seconds + self.reference.run_seconds + self.intermediates.run_seconds
        tolerance = self.options.tolerance
        return Verification(
            engine=engine,
            verdict=NOT_VERIFIED if worst == "outside the contract" else worst,
            cases=tuple(results),
            comparisons=tuple(self.comparisons),
            seconds={"runs": run_seconds, "overhead": seconds - run_seconds},
            seed=self.options.seed,
            error=next((case.error for case in results if case.error), None),
            eager_matches_capture=all(matches) if matches else None,
            reference=self.reference.label,
            crashes=tuple(self.crashes),
            divergences=tuple(self.intermediates.divergences),
            traces=tuple(self.intermediates.traces),
            tolerance=None if tolerance is None else dataclasses.asdict(tolerance),
            resumed=self.resumed,
        )

    def run_engine(self, feeds: Feeds) -> Feeds:
        """Run the engine and measure the time."""
        start = time.perf_counter()
        try:
            return self.session.run(feeds)
        finally:
            self.run_seconds += time.perf_counter() - start

    def check(self, case: Case) -> tuple[CaseResult, Sequence[Comparison]]:
        """Run the engine on one case, add the result, and return it."""
        judgement = Judgement(
            self.reference,
            case.name,
            case.feeds,
            case.run,
            self.options.tolerance,
            self.options.seed,
            functools.partial(self.intermediates.observe, case.feeds),
        )
        matches = None if case.eager is None else judgement.eager_matches(case.eager)
        again = functools.partial(self.run_engine, case.feeds)
        sizes = dict(case.sizes)
        try:
            before = self.run_seconds
            results = again()
            took = self.run_seconds - before
            found: Sequence[Comparison] = judgement.compare(results, again)
            if not self.results and not case.run.random and all(comparison.passed for comparison in found):
                results, found = repeated(again, lambda others: judgement.compare(others, again), results, found, took)
        except OpbridgeError as error:
            crashes = self.crash_sites.locate(case.name, error, case.feeds)
            self.crashes += crashes
            message = str(crashes[0]) if crashes else error.message
            self.results.append(CaseResult(case.name, sizes, "error", matches, message, tuple(case.notes)))
            return self.results[-1], ()
        passed = all(comparison.passed for comparison in found) and matches is not False
        self.comparisons += found
        notes = (*case.notes, *_constant_outputs(case.run.own))
        self.results.append(CaseResult(case.name, sizes, "passed" if passed else "failed", matches, notes=notes))
        failing = [item.output for item in found if not item.passed]
        self.intermediates.bisect(
            case.name, case.feeds, case.run, results, failing, lambda: self.session.run(case.feeds)
        )
        self.intermediates.trace(case.name, case.feeds, case.run)
        return self.results[-1], found

    def bisect_special(self, kind: str, feeds: Feeds, failing: Sequence[str]) -> None:
        """Find the first node whose result is of another kind than in the reference."""
        again = functools.partial(self.run_engine, feeds)
        run = self.reference.run(feeds)
        self.intermediates.bisect(f"special values, {kind}", feeds, run, again(), failing, again, judged_by_kind(kind))


def _outside(case: Case) -> CaseResult:
    """The result of a case with NaN, on which the contract promises nothing."""
    return CaseResult(case.name, dict(case.sizes), OUTSIDE, error=outside_text(case.run.nan), notes=tuple(case.notes))


def _constant_outputs(own: Feeds) -> list[str]:
    """A note for each output whose elements are all equal, such as that of a network whose last weights are zeros."""
    return [
        f"all elements of {name} are {float(value.reshape(-1)[0]):g}, so the comparison proves little"
        for name, value in own.items()
        if is_floating(value.dtype) and value.size > 1 and bool((value == value.reshape(-1)[0]).all())
    ]
