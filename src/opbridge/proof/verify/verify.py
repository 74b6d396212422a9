"""Stage 7: ``verify`` that an engine computes what PyTorch computes, on fresh inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.export.graph_signature import OutputKind, SymIntArgument, TensorArgument

from opbridge.engines.process.crash import Crash
from opbridge.errors import OpbridgeError
from opbridge.proof.bisect.bisection import MOST_BISECTED
from opbridge.proof.bisect.bisection_captured import CapturedInsides, Inside
from opbridge.proof.bisect.crash_site import CrashSites
from opbridge.proof.verify.cases import Case, Cases
from opbridge.proof.verify.eager import Eager
from opbridge.proof.verify.further import Further
from opbridge.proof.verify.journal import Passed
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import REQUIRE
from opbridge.proof.verify.options import Tolerance, VerifyOptions
from opbridge.proof.verify.reference import Reference
from opbridge.proof.verify.repeats import repeated
from opbridge.proof.verify.special import judged_by_kind
from opbridge.proof.verify.trace import Departure, Trace
from opbridge.proof.verify.verification import DEFAULT_SEED, CaseResult, Comparison, Verification
from opbridge.torch_graph.sources import source_of_node

__all__ = ["DEFAULT_SEED", "CaseResult", "Comparison", "Verification", "output_positions", "verify_captured"]

_DEFAULTS = VerifyOptions()


class RunsFeeds(Protocol):
    """What verification needs of a session."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See :meth:`opbridge.engines.base.Session.run`."""


def verify_captured(
    captured: Any,
    session: RunsFeeds,
    *,
    engine: str,
    options: VerifyOptions = _DEFAULTS,
    inside: Inside | None = None,
) -> Verification:
    """Compare an engine's results with PyTorch's, on fresh inputs at the example's sizes and at others.

    Args:
        captured: The result of :func:`opbridge.capture.capture.capture`. Its program and its module are not changed.
        session: The model in the engine.
        engine: The engine's name.
        options: How to verify.
        inside: The engine's model, to look inside of; without it, nothing is bisected or traced.

    Returns:
        What was found. An engine that fails is a case with the verdict "error", not an exception.

    Raises:
        InputError: The options can't be used.
    """
    tolerance, modes = options.tolerance, options.modes
    verifier = _Verifier(captured, session, options.seed, tolerance)
    if inside is not None:
        verifier.look_inside(captured.program, inside, bisect=options.bisect, trace=options.trace)
    start = time.perf_counter()
    further = Further(verifier.cases, verifier.names, verifier.run_engine, tolerance, verifier.seed)
    journal = options.journal.of_engine(engine, captured.program.graph_module.code)
    with contextlib.closing(verifier):
        for case in verifier.cases.chosen(options.inputs, modes, journal):
            if isinstance(case, Passed):
                verifier.restore(case)
                continue
            journal.end(verifier.cases.specs.feeds(case.flat), *verifier.check(case))
            further.saw(case, verifier.results[-1])
        further.run(modes, options.small)
        for kind, feeds, failing in further.departing() if modes.special_values == REQUIRE else ():
            verifier.bisect_special(kind, feeds, failing)
    return further.completed(verifier.verification(engine, time.perf_counter() - start), modes)


class _Verifier:
    """One verification at work."""

    def __init__(self, captured: Any, session: RunsFeeds, seed: int, tolerance: Tolerance | None) -> None:
        self.names = list(captured.output_names)
        self.session = session
        self.seed = seed
        self.tolerance = tolerance
        self.reference = Reference(captured.program, output_positions(captured.program, len(self.names)))
        eager = None if captured.module is None else Eager(captured.module, self.reference.positions)
        self.cases = Cases(captured, self.reference, eager, seed)
        self.run_seconds = 0.0
        self.results: list[CaseResult] = []
        self.comparisons: list[Comparison] = []
        self.resumed = 0
        self.crashes: list[Crash] = []
        self.crash_sites = CrashSites()
        self.departures: list[Departure] = []
        self.traces: list[Trace] = []
        self.insides: CapturedInsides | None = None
        self.bisects = self.traces_first = False

    def look_inside(self, program: torch.export.ExportedProgram, inside: Inside, *, bisect: bool, trace: bool) -> None:
        """Bisect the cases that fail, and trace the first, from now on."""
        self.insides = CapturedInsides(inside, self.reference, program, self.names, self.tolerance, self.seed)
        self.bisects, self.traces_first = bisect, trace
        self.crash_sites = CrashSites(_line_of(program, inside))

    def verification(self, engine: str, seconds: float) -> Verification:
        """All that was found, in ``seconds`` of which some went into runs."""
        results = self._results()
        verdicts = {case.verdict for case in results}
        matches = [case.eager_matches for case in results if case.eager_matches is not None]
        run_seconds = self.run_seconds + self.cases.run_seconds
        run_seconds += 0.0 if self.insides is None else self.insides.run_seconds
        return Verification(
            engine=engine,
            verdict="error" if "error" in verdicts else "passed" if verdicts == {"passed"} else "failed",
            cases=tuple(results),
            comparisons=tuple(self.comparisons),
            seconds={"runs": run_seconds, "overhead": seconds - run_seconds},
            seed=self.seed,
            error=next((case.error for case in results if case.error), None),
            eager_matches_capture=all(matches) if matches else None,
            crashes=tuple(self.crashes),
            departures=tuple(self.departures),
            traces=tuple(self.traces),
            tolerance=None if self.tolerance is None else dataclasses.asdict(self.tolerance),
            resumed=self.resumed,
        )

    def _results(self) -> list[CaseResult]:
        """All cases; what is to be said of all of them stands with the first."""
        results = [*([] if self.cases.problem is None else [self.cases.problem]), *self.results]
        if results:
            results[0] = dataclasses.replace(results[0], notes=(*results[0].notes, *self.cases.notes))
        return results

    def run_engine(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the engine, and count the time."""
        start = time.perf_counter()
        try:
            return self.session.run(feeds)
        finally:
            self.run_seconds += time.perf_counter() - start

    def restore(self, passed: Passed) -> None:
        """Add a case that passed before."""
        self.resumed += 1
        self.results.append(passed.result)
        self.comparisons += passed.comparisons

    def check(self, case: Case) -> tuple[CaseResult, Sequence[Comparison]]:
        """Run the engine on one case, add what came out, and return it."""
        judgement = Judgement(self.reference, case.name, case.flat, case.run, self.tolerance, self.seed)
        matches = None if case.eager is None else judgement.eager_matches(case.eager)
        feeds = self.cases.specs.feeds(case.flat)
        try:
            before = self.run_seconds
            again = functools.partial(self.run_engine, feeds)
            results: Mapping[str, np.ndarray] = again()
            took = self.run_seconds - before
            found: Sequence[Comparison] = judgement.compare(self.names, results, again)
            if not self.results and not any(case.run.random) and all(comparison.passed for comparison in found):
                results, found = repeated(
                    again, lambda others: judgement.compare(self.names, others, again), results, found, took
                )
        except OpbridgeError as error:
            crashes = self.crash_sites.locate(case.name, error, feeds)
            self.crashes += crashes
            message = str(crashes[0]) if crashes else error.message
            sizes = self.cases.named(case.sizes)
            self.results.append(CaseResult(case.name, sizes, "error", matches, message, tuple(case.notes)))
            return self.results[-1], ()
        finally:
            self.run_seconds += judgement.run_seconds
        passed = all(comparison.passed for comparison in found) and matches is not False
        self.comparisons += found
        sizes = self.cases.named(case.sizes)
        verdict = "passed" if passed else "failed"
        notes = (*case.notes, *_says_little(self.names, case.run.own))
        self.results.append(CaseResult(case.name, sizes, verdict, matches, notes=notes))
        self._look_inside(case, feeds, results, [item.output for item in found if not item.passed])
        return self.results[-1], found

    def _look_inside(
        self, case: Case, feeds: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray], failing: Sequence[str]
    ) -> None:
        if self.insides is None:
            return
        if self.bisects and failing and len(self.departures) < MOST_BISECTED:
            self.departures.append(
                self.insides.bisect(
                    case.name, case.flat, case.run, feeds, results, failing, lambda: self.session.run(feeds)
                )
            )
        if self.traces_first and not self.traces:
            self.traces += self.insides.trace(case.name, case.flat, case.run, feeds)

    def bisect_special(self, kind: str, feeds: Mapping[str, np.ndarray], failing: Sequence[str]) -> None:
        """Find where special values become others than in PyTorch."""
        if self.insides is None or not self.bisects or len(self.departures) >= MOST_BISECTED:
            return
        flat, run = self.cases.rerun(feeds)
        again = functools.partial(self.run_engine, feeds)
        self.departures.append(
            self.insides.bisect(
                f"special values, {kind}", flat, run, feeds, again(), failing, again, judged_by_kind(kind)
            )
        )

    def close(self) -> None:
        """Let go of what was opened to look inside the model."""
        if self.insides is not None:
            self.insides.close()


def _line_of(program: torch.export.ExportedProgram, inside: Inside) -> Callable[[str], str]:
    """The user's line of a value of the engine's model."""
    nodes = {node.name: node for node in program.graph.nodes}

    def line_of(value: str) -> str:
        origin = inside.origins.get(value)
        source = None if origin is None or origin.node not in nodes else source_of_node(nodes[origin.node])
        return str(source) if source else ""

    return line_of


def _says_little(names: Sequence[str], own: Sequence[Any]) -> list[str]:
    """A note for each output that has one value in all its elements, as of a network whose last weights are zeros."""
    return [
        f"{name} is {value.flatten()[0].item():g} in every element, so little is proved of it"
        for name, value in zip(names, own, strict=False)
        if isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.numel() > 1
        and bool((value == value.flatten()[0]).all())
    ]


def output_positions(program: torch.export.ExportedProgram, count: int) -> list[int]:
    """Which of the flattened outputs the ONNX model has."""
    user = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    both = [i for i, argument in enumerate(user) if isinstance(argument, TensorArgument | SymIntArgument)]
    only_tensors = [i for i in both if isinstance(user[i], TensorArgument)]
    return both if len(both) == count else only_tensors
