"""Checks of intermediate values: bisection of cases that fail, and traces."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opbridge.errors import first_line
from opbridge.proof.bisect.bisection import FAILURES, FEWEST_BYTES, MOST_BISECTED, Bisection, Judge, bisect
from opbridge.proof.bisect.intermediates_engine import EngineModel, Loader
from opbridge.proof.bisect.intermediates_trace import trace
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference import Feeds, Observed, Reference, Run
from opbridge.proof.verify.trace import Divergence, Trace
from opbridge.torch_graph.origins import Origin

__all__ = ["IntermediateChecks", "ObservableModel"]


@dataclasses.dataclass(frozen=True)
class ObservableModel:
    """An engine's model whose intermediate values can be read.

    Attributes:
        model: The engine's model, or its file.
        load: Loads a part of the model in the engine; see :func:`opbridge.proof.bisect.intermediates_engine.loader`.
        origins: The value of the captured graph for each value, by its ONNX name; empty if the reference is an ONNX
            model, whose values have the same names.
        most_bytes: The number of bytes of intermediate values to hold at a time; by default a quarter of the weights,
            at least 32 MB.
    """

    model: Path | ir.Model
    load: Loader
    origins: Mapping[str, Origin] = dataclasses.field(default_factory=dict)
    most_bytes: int | None = None


class IntermediateChecks:
    """Compares the intermediate values of one verification. The model is opened on first use, until :meth:`close`.

    Args:
        observable: The engine's model; None if nothing is to be bisected or traced.
        reference: The reference.
        options: The options of the verification.

    Attributes:
        divergences: The results of the bisections.
        traces: The traces.
        run_seconds: The time spent in runs.
    """

    def __init__(self, observable: ObservableModel | None, reference: Reference, options: VerifyOptions) -> None:
        self._observable = observable
        self._reference = reference
        self._options = options
        self._stack = contextlib.ExitStack()
        self._opened: EngineModel | None = None
        self._traces = options.trace
        self.divergences: list[Divergence] = []
        self.traces: list[Trace] = []
        self.run_seconds = 0.0

    def close(self) -> None:
        """Close the model."""
        self._stack.close()

    def forget(self) -> None:
        """Drop the results."""
        self.divergences.clear()
        self.traces.clear()

    def source_of(self, value: str) -> str:
        """The user's line of a value of the engine's model; empty if unknown."""
        return "" if self._observable is None else self._reference.source_of(value, self._observable.origins)

    def observe(self, feeds: Feeds, nodes: Collection[str], outputs: Collection[str]) -> Observed:
        """The engine's values inside its model on one case; what can't be read is left out.

        Args:
            feeds: The inputs.
            nodes: The nodes of the captured graph whose discrete values are wanted.
            outputs: The outputs of the same run that are wanted.
        """
        if self._observable is None:
            return Observed()
        origins = self._observable.origins
        try:
            model, _ = self._open(self._observable)
            wanted = [name for name in model.values if name in origins and origins[name].node in nodes]
            shown = [name for name in outputs if name in model.values]
            results = model.run(list(dict.fromkeys([*wanted, *shown])), feeds) if wanted else {}
            self.run_seconds += model.run_seconds
        except FAILURES:
            return Observed()
        return Observed(
            {origins[name]: results[name] for name in wanted}, {name: results[name] for name in shown if wanted}
        )

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
            run: The results of the reference.
            results: The engine's results.
            failing: The outputs that fail.
            again: Runs the engine once more.
            judge: Decides whether a value passes; it replaces the tolerance.
        """
        if (
            self._observable is None
            or not self._options.bisect
            or not failing
            or len(self.divergences) >= MOST_BISECTED
        ):
            return
        given = [name for name in failing if name in results and name not in run.random]
        if not given:
            drawn = run.random.intersection(failing)
            why = "the outputs that differ depend on random draws" if drawn else "there is no such output"
            self.divergences.append(Divergence(case, "not found", None, detail=why))
            return
        try:
            model, most_bytes = self._open(self._observable)
            with self._reference.values(feeds, run, self._observable.origins, most_bytes) as values:
                tolerance = self._options.tolerance
                found = bisect(
                    Bisection(case, model, values, feeds, results, given, again, most_bytes, tolerance, judge)
                )
                self.run_seconds += model.run_seconds + values.run_seconds
        except FAILURES as error:
            found = Divergence(case, "not found", None, detail=f"the model can't be opened: {first_line(error)}")
        self.divergences.append(found)

    def trace(self, case: str, feeds: Feeds, run: Run) -> None:
        """Measure the error against the depth on the first case, if that is requested."""
        if self._observable is None or not self._traces or self.traces:
            return
        try:
            model, most_bytes = self._open(self._observable)
            with self._reference.values(feeds, run, self._observable.origins, most_bytes) as values:
                tolerance = self._options.tolerance
                self.traces.append(trace(case, model, values, feeds, most_bytes=most_bytes, tolerance=tolerance))
                self.run_seconds += model.run_seconds + values.run_seconds
        except FAILURES:
            # An engine accepts the model only with its own outputs.
            self._traces = False

    def _open(self, observable: ObservableModel) -> tuple[EngineModel, int]:
        if self._opened is None:
            self._opened = self._stack.enter_context(EngineModel(observable.model, observable.load))
        self._opened.runs = 0
        self._opened.run_seconds = 0.0
        return self._opened, observable.most_bytes or max(FEWEST_BYTES, self._opened.weight_bytes // 4)
