"""Bisection and traces against an original ONNX model."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opbridge.proof.bisect.bisection import FAILURES, FEWEST_BYTES, MOST_BISECTED, Bisection, bisect
from opbridge.proof.bisect.intermediates_engine import EngineModel, Loader
from opbridge.proof.bisect.intermediates_onnx import OriginalValues
from opbridge.proof.bisect.intermediates_trace import trace
from opbridge.proof.verify.onnx_reference import Feeds, OriginalRuns
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.trace import Departure, Trace

__all__ = ["ModelInside", "ModelInsides"]


@dataclasses.dataclass(frozen=True)
class ModelInside:
    """What it takes to look inside an engine's model.

    Attributes:
        model: The engine's model, or its file.
        load: Loads a part of it in the engine; see :func:`opbridge.proof.bisect.intermediates_engine.loader`.
        most_bytes: Bytes of intermediate values to hold at a time; by default a quarter of the weights, at least 32 MB.
    """

    model: Path | ir.Model
    load: Loader
    most_bytes: int | None = None


class ModelInsides:
    """Looks inside an engine's model on the cases of one verification.

    Args:
        inside: The engine's model.
        runs: Who runs the original.
        tolerance: The tolerance that replaces the error budget.
        seed: Of jiggled inputs.
        bisects: Whether to bisect the cases that fail.
        traces: Whether to trace the first case.

    Attributes:
        departures: What was found.
        traces: Likewise.
    """

    def __init__(
        self,
        inside: ModelInside,
        runs: OriginalRuns,
        tolerance: Tolerance | None,
        seed: int,
        *,
        bisects: bool,
        traces: bool,
    ) -> None:
        self._inside = inside
        self._runs = runs
        self._tolerance = tolerance
        self._seed = seed
        self._bisects = bisects
        self._traces = traces
        self.departures: list[Departure] = []
        self.traces: list[Trace] = []

    def forget(self) -> None:
        """Begin again, because another program runs the original."""
        self.departures.clear()
        self.traces.clear()

    def look(
        self,
        case: str,
        feeds: Feeds,
        results: Mapping[str, np.ndarray],
        failing: Sequence[str],
        engine: Callable[[Feeds], Feeds],
    ) -> float:
        """Bisect and trace one case, as far as that is asked for.

        Args:
            case: Its name.
            feeds: Its inputs.
            results: What the engine made of them.
            failing: The outputs that do not fit.
            engine: Runs the engine once more.

        Returns:
            The seconds spent in runs.
        """
        bisects = self._bisects and bool(failing) and len(self.departures) < MOST_BISECTED
        traces = self._traces and not self.traces
        if not bisects and not traces:
            return 0.0
        started = time.perf_counter()
        with contextlib.ExitStack() as stack:
            model = stack.enter_context(EngineModel(self._inside.model, self._inside.load))
            most_bytes = self._inside.most_bytes or max(FEWEST_BYTES, model.weight_bytes // 4)
            original = OriginalValues(self._runs.opened, feeds, seed=self._seed, most_bytes=most_bytes)
            values = stack.enter_context(original)
            if bisects:
                given = [name for name in failing if name in results]
                found = Bisection(
                    case, model, values, feeds, results, given, lambda: engine(feeds), most_bytes, self._tolerance
                )
                self.departures.append(bisect(found))
            if traces:
                try:
                    self.traces.append(
                        trace(case, model, values, feeds, most_bytes=most_bytes, tolerance=self._tolerance)
                    )
                except FAILURES:
                    # The engine, or what runs the original, takes the model with its own outputs alone.
                    self._traces = False
        return time.perf_counter() - started
