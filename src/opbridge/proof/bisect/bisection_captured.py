"""Bisection and traces against the captured graph: what ``verify`` keeps open of a model, as long as it needs it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from opbridge.errors import first_line
from opbridge.proof.bisect.bisection import FAILURES, FEWEST_BYTES, Bisection, Judge, bisect
from opbridge.proof.bisect.intermediates import CapturedValues
from opbridge.proof.bisect.intermediates_engine import EngineModel, Loader
from opbridge.proof.bisect.intermediates_trace import trace
from opbridge.proof.verify.judgement import jiggled
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.reference import PairRun, Reference
from opbridge.proof.verify.trace import Departure, Trace
from opbridge.torch_graph.origins import Origin

__all__ = ["CapturedInsides", "Inside"]

_JIGGLES = 5


@dataclasses.dataclass(frozen=True)
class Inside:
    """What it takes to look inside an engine's model.

    Attributes:
        model: The engine's model, or its file.
        load: Loads a part of it in the engine; see :func:`opbridge.proof.bisect.intermediates_engine.loader`.
        origins: The values that the captured graph has too, by their ONNX names.
        most_bytes: Bytes of intermediate values to hold at a time; by default a quarter of the weights, at least 32 MB.
    """

    model: Path | ir.Model
    load: Loader
    origins: Mapping[str, Origin]
    most_bytes: int | None = None


class CapturedInsides:
    """An engine's model and the captured graph, side by side; the model is opened on first use, until :meth:`close`.

    Args:
        inside: The engine's model.
        reference: The captured graph.
        program: The program that it was made of.
        outputs: The ONNX names of the outputs of ``reference``.
        tolerance: Instead of the error budget.
        seed: Of random draws and jiggled inputs.
    """

    def __init__(
        self,
        inside: Inside,
        reference: Reference,
        program: torch.export.ExportedProgram,
        outputs: Sequence[str],
        tolerance: Tolerance | None,
        seed: int,
    ) -> None:
        self._inside = inside
        self._reference = reference
        self._program = program
        self._outputs = tuple(outputs)
        self._seed = seed
        self._tolerance = tolerance
        self._origins = {**_origins_of_outputs(reference, outputs), **inside.origins}
        self._stack = contextlib.ExitStack()
        self._opened: EngineModel | None = None
        self.run_seconds = 0.0

    def close(self) -> None:
        """Let go of the model."""
        self._stack.close()

    def bisect(
        self,
        case: str,
        flat: Sequence[Any],
        run: PairRun,
        feeds: Mapping[str, np.ndarray],
        results: Mapping[str, np.ndarray],
        failing: Sequence[str],
        again: Callable[[], Mapping[str, np.ndarray]],
        judge: Judge | None = None,
    ) -> Departure:
        """Find where the engine departs on a case that failed.

        Args:
            case: Its name.
            flat: Its inputs, flattened.
            run: What the captured graph made of them.
            feeds: They as the engine takes them.
            results: What the engine made of them.
            failing: The outputs that do not fit.
            again: Runs the engine once more.
            judge: Says whether a value fits, instead of the error budget.
        """
        try:
            model = self._open()
        except FAILURES as error:
            return Departure(case, "not found", None, detail=f"the model can't be opened: {first_line(error)}")
        values = self._values(flat, run)
        drawn = {name for name, random in zip(self._outputs, run.random, strict=False) if random}
        given = [name for name in failing if name in results and name not in drawn]
        if not given:
            why = "what differs depends on random draws" if drawn.intersection(failing) else "there is no such output"
            return Departure(case, "not found", None, detail=why)
        found = bisect(
            Bisection(case, model, values, feeds, results, given, again, self._most_bytes(), self._tolerance, judge)
        )
        self._account(model, values)
        return found

    def trace(self, case: str, flat: Sequence[Any], run: PairRun, feeds: Mapping[str, np.ndarray]) -> tuple[Trace, ...]:
        """The error against the depth on a case; none where the engine fails with other outputs than its own."""
        try:
            model, values = self._open(), self._values(flat, run)
            found = trace(case, model, values, feeds, most_bytes=self._most_bytes(), tolerance=self._tolerance)
        except FAILURES:
            return ()
        self._account(model, values)
        return (found,)

    def _open(self) -> EngineModel:
        if self._opened is None:
            self._opened = self._stack.enter_context(EngineModel(self._inside.model, self._inside.load))
        self._opened.runs = 0
        self._opened.run_seconds = 0.0
        return self._opened

    def _values(self, flat: Sequence[Any], run: PairRun) -> CapturedValues:
        return CapturedValues(
            self._reference, self._program, self._origins, flat, run, seed=self._seed, jiggled=self._jiggled
        )

    def _jiggled(self, flat: Sequence[Any]) -> list[list[Any]]:
        random = torch.Generator().manual_seed(self._seed)
        return [[jiggled(value, random) for value in flat] for _ in range(_JIGGLES)]

    def _most_bytes(self) -> int:
        if self._inside.most_bytes is not None:
            return self._inside.most_bytes
        return max(FEWEST_BYTES, self._open().weight_bytes // 4)

    def _account(self, model: EngineModel, values: CapturedValues) -> None:
        self.run_seconds += model.run_seconds + values.run_seconds


def _origins_of_outputs(reference: Reference, outputs: Sequence[str]) -> dict[str, Origin]:
    nodes = zip(outputs, reference.output_nodes, strict=False)
    return {name: Origin(node.name) for name, node in nodes if isinstance(node, torch.fx.Node)}
