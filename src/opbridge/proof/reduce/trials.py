"""Runs a model on an engine in a child process and reports its failure."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from opbridge.atomic import TemporaryFolder
from opbridge.engines.base import Engine
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.process.limits import current_limits
from opbridge.errors import EngineCrashError, EngineError, OpbridgeError
from opbridge.onnx_model.write import save_model
from opbridge.proof.reduce.failure import Failure, failure_of_comparisons, failure_of_error
from opbridge.proof.reduce.problem import Problem, evaluate, widened
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.original_runs import paired
from opbridge.proof.verify.reference import Feeds, Run
from opbridge.proof.verify.verification import DEFAULT_SEED, Comparison
from opbridge.proof.verify.widened_model import longest_sum, random_outputs

__all__ = ["Clock", "EngineTrials", "Tried"]


class Clock:
    """The time limit of a reduction, and the number of its runs.

    Args:
        seconds: The time limit.
        progress: A callback that receives a message for each run.
    """

    def __init__(self, seconds: float, progress: Callable[[str], None]) -> None:
        self._end = time.monotonic() + seconds
        self._progress = progress
        self.tries = 0

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return time.monotonic() >= self._end

    def tick(self, what: str) -> None:
        """Count a run and report it."""
        self.tries += 1
        self._progress(f"try {self.tries}: {what}")


@dataclasses.dataclass(frozen=True)
class Tried:
    """The result of a run.

    Attributes:
        failure: The failure; None if the model passed.
        expected: The results of onnx's evaluator; None if it does not accept the model.
        comparisons: The comparisons of the engine's outputs with ``expected``.
    """

    failure: Failure | None
    expected: Feeds | None = None
    comparisons: tuple[Comparison, ...] = ()


class EngineTrials:
    """Runs models on one engine.

    Args:
        engine: The engine.
        libraries: The kernel libraries of the model.
        seconds: The time limit of loading and of each run.
        clock: The time limit of the reduction.
    """

    def __init__(self, engine: Engine, libraries: Sequence[Path], seconds: float, clock: Clock) -> None:
        self._engine = engine
        self._libraries = libraries
        self._limits = current_limits().at_most(seconds)
        self._clock = clock

    def run(self, problem: Problem, *, must_be_standard: bool = False, expected: Feeds | None = None) -> Tried:
        """Run a model on its inputs.

        Args:
            problem: The model.
            must_be_standard: Whether a model that the evaluator rejects counts as not failing, because a wrongly cut
                part is rejected everywhere.
            expected: The expected results if they are known already; the evaluator is far slower than an engine.
        """
        self._clock.tick(f"{len(problem.nodes)} node{'' if len(problem.nodes) == 1 else 's'}")
        expected = evaluate(problem.model, problem.feeds) if expected is None else expected
        if expected is None and must_be_standard:
            return Tried(None)
        with TemporaryFolder() as folder:
            save_model(problem.model, Path(folder))
            return self._run(problem, Path(folder) / "model.onnx", expected)

    def _run(self, problem: Problem, file: Path, expected: Feeds | None) -> Tried:
        stage = "loading"
        try:
            with IsolatedSession(self._engine.name, file, libraries=self._libraries, limits=self._limits) as session:
                stage = "running"
                results = session.run(problem.feeds)
                if expected is None:
                    return Tried(None)
                found = self._judge(problem, expected, results, session)
        except (EngineError, EngineCrashError) as error:
            return Tried(failure_of_error(error, stage, problem.names()), expected)
        except OpbridgeError:
            # The inputs do not fit the extracted part; this is not a failure of the engine.
            return Tried(None, expected)
        return Tried(failure_of_comparisons(found), expected, tuple(found))

    def _judge(self, problem: Problem, expected: Feeds, results: Feeds, session: IsolatedSession) -> list[Comparison]:
        reference = _Standard(problem)
        run = reference.run(problem.feeds, own=expected)
        judgement = Judgement(reference, "", problem.feeds, run, None, DEFAULT_SEED)
        return judgement.compare(results, lambda: session.run(problem.feeds))


class _Standard:
    """A model in ONNX's reference evaluator, with the interface of :class:`~opbridge.proof.verify.reference.Runs`.

    Args:
        problem: The model.
    """

    name = "the standard"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def run(self, feeds: Feeds, *, perturbing: np.random.Generator | None = None, own: Feeds | None = None) -> Run:
        """Run the evaluator in the model's own types and in float64; ``own`` replaces the first run if it is known."""
        problem = Problem(self._problem.model, feeds)
        own = evaluate(problem.model, feeds) if own is None else own
        if own is None:
            raise EngineError("onnx's reference evaluator failed.", fix="pass other inputs.")
        in_float64 = widened(problem)
        arrays = {name: np.asarray(array) for name, array in own.items()}
        model = problem.model
        return paired(arrays, evaluate(in_float64.model, in_float64.feeds), random_outputs(model), longest_sum(model))

    def draw(self, feeds: Feeds, number: int) -> Feeds:
        """The outputs with other random numbers; the evaluator draws new ones in every run."""
        return self.run(feeds).own

    def near_ties(self, feeds: Feeds, failing: Feeds) -> None:
        """Return None: the margins of decisions inside an ONNX model are not known."""
