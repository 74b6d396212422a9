"""The values inside an engine's model and inside the reference, compared: bisection of cases that fail, and traces."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opbridge.errors import first_line
from opbridge.proof.bisect.bisection import FAILURES, FEWEST_BYTES, MOST_BISECTED, Bisection, Judge, bisect
from opbridge.proof.bisect.intermediates_engine import EngineModel, Loader
from opbridge.proof.bisect.intermediates_trace import trace
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference import Feeds, Reference, Run
from opbridge.proof.verify.trace import Departure, Trace
from opbridge.torch_graph.origins import Origin

__all__ = ["Inside", "Insides"]


@dataclasses.dataclass(frozen=True)
class Inside:
    """What is needed to read the values inside an engine's model.

    Attributes:
        model: The engine's model, or its file.
        load: Loads a part of it in the engine; see :func:`opbridge.proof.bisect.intermediates_engine.loader`.
        origins: Which value of a captured graph each value is, by its ONNX name; empty if the reference is an ONNX
            model, whose values have the same names.
        most_bytes: The number of bytes of intermediate values to hold at a time; by default a quarter of the weights,
            at least 32 MB.
    """

    model: Path | ir.Model
    load: Loader
    origins: Mapping[str, Origin] = dataclasses.field(default_factory=dict)
    most_bytes: int | None = None


class Insides:
    """An engine's model beside the reference, for one verification. It is opened on first use, until :meth:`close`.

    Args:
        inside: The engine's model; None if nothing is to be bisected or traced.
        reference: The reference.
        options: How to verify.

    Attributes:
        departures: The results of the bisections.
        traces: The traces.
        run_seconds: The time spent in runs.
    """

    def __init__(self, inside: Inside | None, reference: Reference, options: VerifyOptions) -> None:
        self._inside = inside
        self._reference = reference
        self._options = options
        self._stack = contextlib.ExitStack()
        self._opened: EngineModel | None = None
        self._traces = options.trace
        self.departures: list[Departure] = []
        self.traces: list[Trace] = []
        self.run_seconds = 0.0

    def close(self) -> None:
        """Close the model."""
        self._stack.close()

    def forget(self) -> None:
        """Drop what was found."""
        self.departures.clear()
        self.traces.clear()

    def source_of(self, value: str) -> str:
        """The user's line of a value of the engine's model; empty if that is not known."""
        return "" if self._inside is None else self._reference.source_of(value, self._inside.origins)

    def bisect(
        self,
        case: str,
        feeds: Feeds,
        run: Run,
        results: Mapping[str, np.ndarray],
        failing: Sequence[str],
        again: Callable[[], Mapping[str, np.ndarray]],
        judge: Judge | None = None,
    ) -> None:
        """Find the first mismatching node on a case that failed, if that is requested.

        Args:
            case: The case's name.
            feeds: The inputs.
            run: What the reference computes from them.
            results: The engine's results.
            failing: The outputs that do not fit.
            again: Runs the engine once more.
            judge: Decides whether a value fits, instead of the error budget.
        """
        if self._inside is None or not self._options.bisect or not failing or len(self.departures) >= MOST_BISECTED:
            return
        given = [name for name in failing if name in results and name not in run.random]
        if not given:
            drawn = run.random.intersection(failing)
            why = "what differs depends on random draws" if drawn else "there is no such output"
            self.departures.append(Departure(case, "not found", None, detail=why))
            return
        try:
            model, most_bytes = self._open(self._inside)
            with self._reference.values(feeds, run, self._inside.origins, most_bytes) as values:
                tolerance = self._options.tolerance
                found = bisect(
                    Bisection(case, model, values, feeds, results, given, again, most_bytes, tolerance, judge)
                )
                self.run_seconds += model.run_seconds + values.run_seconds
        except FAILURES as error:
            found = Departure(case, "not found", None, detail=f"the model can't be opened: {first_line(error)}")
        self.departures.append(found)

    def trace(self, case: str, feeds: Feeds, run: Run) -> None:
        """Measure the error against the depth on the first case, if that is requested."""
        if self._inside is None or not self._traces or self.traces:
            return
        try:
            model, most_bytes = self._open(self._inside)
            with self._reference.values(feeds, run, self._inside.origins, most_bytes) as values:
                tolerance = self._options.tolerance
                self.traces.append(trace(case, model, values, feeds, most_bytes=most_bytes, tolerance=tolerance))
                self.run_seconds += model.run_seconds + values.run_seconds
        except FAILURES:
            # The engine, or what runs the reference, accepts the model with its own outputs alone.
            self._traces = False

    def _open(self, inside: Inside) -> tuple[EngineModel, int]:
        if self._opened is None:
            self._opened = self._stack.enter_context(EngineModel(inside.model, inside.load))
        self._opened.runs = 0
        self._opened.run_seconds = 0.0
        return self._opened, inside.most_bytes or max(FEWEST_BYTES, self._opened.weight_bytes // 4)
