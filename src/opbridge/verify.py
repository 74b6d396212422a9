"""Stage 7: ``verify`` that an engine computes what PyTorch computes, on fresh inputs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.export.graph_signature import OutputKind, SymIntArgument, TensorArgument

from opbridge.errors import InputError, OpbridgeError
from opbridge.proof.eager import Eager
from opbridge.proof.fresh import BOLD, SHUFFLED
from opbridge.proof.inputs import InputSpecs
from opbridge.proof.judgement import Judgement, Tolerance
from opbridge.proof.reference import PairRun, Reference
from opbridge.verification import DEFAULT_SEED, CaseResult, Comparison, Verification

__all__ = ["DEFAULT_SEED", "CaseResult", "Comparison", "Verification", "verify_captured"]

_MOST_REFUSED_SIZES = 24


class RunsFeeds(Protocol):
    """What verification needs of a session."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See :meth:`opbridge.engines.base.Session.run`."""


def verify_captured(
    captured: Any,
    session: RunsFeeds,
    *,
    engine: str,
    seed: int | None = None,
    inputs: Sequence[Mapping[str, np.ndarray]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Verification:
    """Compare an engine's results with PyTorch's, on fresh inputs at the example's sizes and at others.

    Args:
        captured: The model as :func:`opbridge.capture.capture` returns it. Neither its program nor its module changes.
        session: The model in the engine.
        engine: The engine's name.
        seed: What the inputs are made from.
        inputs: The user's own inputs instead of fresh ones, one dict of arrays by ONNX name per case.
        rtol: With ``atol``: replaces the error budget by numpy.allclose's test against PyTorch's own result; the one
            that is not given is 0.
        atol: See ``rtol``.

    Returns:
        What was found. An engine that fails is a case with the verdict "error", not an exception.

    Raises:
        InputError: ``inputs``, ``rtol`` or ``atol`` can't be used.
    """
    tolerance = _tolerance(rtol, atol)
    verifier = _Verifier(captured, session, DEFAULT_SEED if seed is None else seed, tolerance)
    start = time.perf_counter()
    cases = verifier.fresh_cases() if inputs is None else verifier.given_cases(inputs)
    for case in cases:
        verifier.check(case)
    return verifier.verification(engine, time.perf_counter() - start)


def _tolerance(rtol: float | None, atol: float | None) -> Tolerance | None:
    if rtol is None and atol is None:
        return None
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not (np.isfinite(value) and value >= 0):
            raise InputError(f"{name}={value}: a tolerance is a number not below 0.", fix=f"pass {name}=1e-4, say.")
    return Tolerance(rtol or 0.0, atol or 0.0)


@dataclasses.dataclass
class _Case:
    """Inputs that PyTorch takes, with what it makes of them."""

    name: str
    sizes: dict[str, int]
    flat: list[Any]
    run: PairRun
    eager: list[Any] | None
    notes: list[str]


class _Verifier:
    """One verification at work."""

    def __init__(self, captured: Any, session: RunsFeeds, seed: int, tolerance: Tolerance | None) -> None:
        self.names = list(captured.output_names)
        self.dimension_names = dict(getattr(captured, "dimension_names", {}))
        self.session = session
        self.seed = seed
        self.tolerance = tolerance
        self.specs = InputSpecs(captured)
        self.reference = Reference(captured.program, _output_positions(captured.program, len(self.names)))
        self.eager = None if captured.module is None else Eager(captured.module, self.reference.positions)
        self.run_seconds = 0.0
        self.results: list[CaseResult] = []
        self.comparisons: list[Comparison] = []

    def given_cases(self, inputs: Sequence[Mapping[str, np.ndarray]]) -> Iterator[_Case]:
        """One case per dict of the user's arrays."""
        for number, arrays in enumerate(inputs, 1):
            flat, sizes = self.specs.given(arrays)
            try:
                yield self._case(f"given {number}", sizes, flat)
            except OpbridgeError:
                raise
            except Exception as error:
                raise InputError(
                    f"PyTorch refuses the inputs number {number}: {_first_line(error)}",
                    fix="pass inputs that the model takes, of sizes within the exported ranges.",
                    details=str(error),
                ) from error

    def fresh_cases(self) -> Iterator[_Case]:
        """The example's sizes, then two others of every dynamic dimension."""
        base, boldness = self._at_base()
        if base is None:
            return
        yield base
        done = [base.sizes]
        for number, direction in enumerate((1, -1), 2):
            case, refused = self._at_other_sizes(f"sizes {number}", direction, boldness, done)
            if case is not None:
                done.append(case.sizes)
                case.notes += refused
                yield case
            elif base.sizes:
                self._add_note("sizes of the dynamic dimensions could not all be tried: " + _untried(refused, done))

    def _at_base(self) -> tuple[_Case | None, int]:
        sizes, message = self.specs.sizes.base, ""
        for boldness in range(BOLD, SHUFFLED + 1):
            try:
                return self._case("example sizes", sizes, self.specs.fresh(sizes, self.seed, boldness)), boldness
            except Exception as error:
                message = _first_line(error)
        try:
            case = self._case("example sizes", sizes, list(self.specs.flat))
        except Exception as error:
            problem = f"PyTorch itself refuses the example inputs: {_first_line(error)}"
            self.results.append(CaseResult("example sizes", self._named(sizes), "failed", error=problem))
            return None, SHUFFLED
        case.notes.append(f"the example's own values were used, because PyTorch refuses fresh ones: {message}")
        return case, SHUFFLED

    def _at_other_sizes(
        self, name: str, direction: int, boldness: int, done: Sequence[Mapping[str, int]]
    ) -> tuple[_Case | None, list[str]]:
        refused: list[str] = []
        for sizes in self.specs.sizes.others(direction, done):
            if len(refused) >= _MOST_REFUSED_SIZES:
                break
            try:
                return self._case(name, sizes, self.specs.fresh(sizes, self.seed + direction, boldness)), refused
            except Exception as error:
                text = ", ".join(f"{key}={value}" for key, value in self._named(sizes).items())
                refused.append(f"PyTorch refuses {text}: {_first_line(error)}")
        return None, refused

    def verification(self, engine: str, seconds: float) -> Verification:
        """All that was found, in ``seconds`` of which some went into runs."""
        verdicts = {case.verdict for case in self.results}
        matches = [case.eager_matches for case in self.results if case.eager_matches is not None]
        return Verification(
            engine=engine,
            verdict="error" if "error" in verdicts else "passed" if verdicts == {"passed"} else "failed",
            cases=tuple(self.results),
            comparisons=tuple(self.comparisons),
            seconds={"runs": self.run_seconds, "overhead": seconds - self.run_seconds},
            seed=self.seed,
            error=next((case.error for case in self.results if case.error), None),
            eager_matches_capture=all(matches) if matches else None,
        )

    def _named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the user's names of the dimensions, where he gave any."""
        return {self.dimension_names.get(symbol, symbol): size for symbol, size in sizes.items()}

    def _add_note(self, note: str) -> None:
        if self.results:
            first = self.results[0]
            self.results[0] = dataclasses.replace(first, notes=(*first.notes, note))

    def _case(self, name: str, sizes: Mapping[str, int], flat: list[Any]) -> _Case:
        """Run PyTorch. Raises whatever it raises for inputs that it does not take."""
        start = time.perf_counter()
        try:
            eager = None if self.eager is None else self.eager.run(*self.specs.arguments(flat), seed=self.seed)
            run = self.reference.run(flat, seed=self.seed)
        finally:
            self.run_seconds += time.perf_counter() - start
        notes = [f"{target} has no float64 implementation: it ran in its own dtype" for target in run.narrow]
        return _Case(name, dict(sizes), flat, run, eager, notes)

    def _run_engine(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        start = time.perf_counter()
        try:
            return self.session.run(feeds)
        finally:
            self.run_seconds += time.perf_counter() - start

    def check(self, case: _Case) -> None:
        """Run the engine on one case and add what came out."""
        judgement = Judgement(self.reference, case.name, case.flat, case.run, self.tolerance, self.seed)
        matches = None if case.eager is None else judgement.eager_matches(case.eager)
        try:
            feeds = self.specs.feeds(case.flat)
            found = judgement.compare(self.names, self._run_engine(feeds), lambda: self._run_engine(feeds))
        except OpbridgeError as error:
            self.results.append(
                CaseResult(case.name, self._named(case.sizes), "error", matches, error.message, tuple(case.notes))
            )
            return
        finally:
            self.run_seconds += judgement.run_seconds
        passed = all(comparison.passed for comparison in found) and matches is not False
        self.comparisons += found
        sizes = self._named(case.sizes)
        verdict = "passed" if passed else "failed"
        self.results.append(CaseResult(case.name, sizes, verdict, matches, notes=tuple(case.notes)))


def _output_positions(program: torch.export.ExportedProgram, count: int) -> list[int]:
    """Which of the flattened outputs the ONNX model has."""
    user = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    both = [i for i, argument in enumerate(user) if isinstance(argument, TensorArgument | SymIntArgument)]
    only_tensors = [i for i in both if isinstance(user[i], TensorArgument)]
    return both if len(both) == count else only_tensors


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def _untried(refused: Sequence[str], done: Sequence[Mapping[str, int]]) -> str:
    if refused:
        return "; ".join(refused[:3]) + (f" (and {len(refused) - 3} more)" if len(refused) > 3 else "")
    return f"the ranges leave only {len(done)} combination{'' if len(done) == 1 else 's'}"
