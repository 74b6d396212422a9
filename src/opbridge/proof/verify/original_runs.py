"""Runs of an original ONNX model, in another engine if possible.

There are two runs, one in the model's own types and one in float64. Both are in child processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opbridge import engines
from opbridge.engines.base import Engine, Session
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.process.limits import current_limits
from opbridge.errors import OpbridgeError
from opbridge.onnx_model.write import save_model
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.reference import Feeds, Run
from opbridge.proof.verify.widened_model import widened_model

__all__ = ["Candidate", "OriginalModel", "OriginalRuns", "believed", "candidates", "paired", "widened"]

EVALUATOR = "reference"
_EVALUATOR_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An engine that may run the original.

    Attributes:
        engine: The engine's name, for :func:`opbridge.engines.get`.
        label: The engine's name in a verification.
        seconds: The time limit of a run; None for the current limits.
    """

    engine: str
    label: str
    seconds: float | None = None

    def load(self, file: Path) -> Session:
        """Load a model. Raises EngineError if the engine refuses it."""
        limits = current_limits()
        limits = limits if self.seconds is None else limits.at_most(self.seconds)
        return IsolatedSession(self.engine, file, limits=limits)


def candidates(engine: Engine) -> Iterator[Candidate]:
    """The engines that may run the original to verify ``engine``: others, the evaluator, then ``engine`` itself."""
    for name in engines.names():
        other = engines.get(name)
        if other.is_reference and other.name != engine.name and other.is_installed():
            yield Candidate(name, f"{name} {other.version}")
    evaluator = engines.get(EVALUATOR)
    if evaluator.is_installed():
        yield Candidate(EVALUATOR, f"onnx's reference evaluator {evaluator.version}", _EVALUATOR_SECONDS)
    yield Candidate(engine.name, f"{engine.name} {engine.version} itself")


@dataclasses.dataclass(frozen=True)
class OriginalModel:
    """The original without functions, and the engines that run it.

    Attributes:
        model: The model.
        own: The engine that runs the model in its own types.
        float64: The engine that runs the model in float64; None if none does.
    """

    model: ir.Model
    own: Candidate
    float64: Candidate | None


class OriginalRuns:
    """The original, loaded in the first engine that runs it. A context manager.

    Args:
        original: The model.
        engine: The engine that is verified.
        folder: The folder that the model is written to.
        own: The engines that may run the model in its own types; by default all candidates.

    Attributes:
        problems: Why candidates do not run the model.
    """

    def __init__(
        self, original: ir.Model, engine: Engine, folder: Path, own: Sequence[Candidate] | None = None
    ) -> None:
        everyone = list(candidates(engine))
        self._waiting = everyone if own is None else list(own)
        self._float64_waiting = _evaluator_first(everyone)
        self._model = _inlined(original)
        self._folder = folder
        self._own: Session | None = None
        self._float64: Session | None = None
        self._own_label = self._float64_label = ""
        self._running: dict[str, Candidate] = {}
        self._stack = contextlib.ExitStack()
        self.problems: list[str] = []

    def __enter__(self) -> OriginalRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def label(self) -> str:
        """A description of the reference; known after the first run."""
        float64 = (
            "the same in float64" if self._float64_label == self._own_label else f"in float64 in {self._float64_label}"
        )
        second = f", and {float64}" if self._float64_label else ", without a float64 reference"
        return f"the original model in {self._own_label}{second}"

    @property
    def opened(self) -> OriginalModel:
        """The model and the engines that run it, to read its intermediate values."""
        return OriginalModel(
            self._model, self._running["original.onnx"], self._running["widened.onnx"] if self._float64 else None
        )

    def load_next(self) -> bool:
        """Switch to the next candidate that loads the model; False if there is none."""
        if self._own is not None:
            self._own = None
        while self._waiting:
            candidate = self._waiting.pop(0)
            loaded = self._load(candidate, "original.onnx", lambda: self._model)
            if loaded is not None:
                self._own, self._own_label = loaded, candidate.label
                return True
        return False

    def own(self, feeds: Feeds) -> Feeds:
        """The original's outputs. Raises EngineError if the engine does not accept the inputs."""
        assert self._own is not None
        return self._own.run(feeds)

    def run(self, feeds: Feeds) -> tuple[Feeds, Feeds | None]:
        """The outputs in the original's types and in float64; None if nothing runs the float64 model."""
        return self.own(feeds), self._run_float64(feeds)

    def _run_float64(self, feeds: Feeds) -> Feeds | None:
        float64_feeds = {name: widened(array) for name, array in feeds.items()}
        while self._float64 is not None or self._float64_waiting:
            if self._float64 is None:
                candidate = self._float64_waiting.pop(0)
                self._float64_label = candidate.label
                self._float64 = self._load(candidate, "widened.onnx", lambda: widened_model(self._model))
                continue
            try:
                return self._float64.run(float64_feeds)
            except OpbridgeError:
                # The original ran on these inputs, so the engine rejects the float64 model.
                self._float64, self._float64_label = None, ""
        self._float64_label = ""
        return None

    def _load(self, candidate: Candidate, name: str, make: Callable[[], ir.Model]) -> Session | None:
        try:
            if not (self._folder / name).exists():
                save_model(make(), self._folder, name=name)
            session = candidate.load(self._folder / name)
        except OpbridgeError as error:
            self.problems.append(f"{candidate.label}: {error.message}")
            return None
        self._running[name] = candidate
        self._stack.callback(session.close)  # type: ignore[attr-defined]
        return session


def _inlined(model: ir.Model) -> ir.Model:
    """The model without functions, of which the evaluator does not tell overloads apart, and without unread weights."""
    unread = [name for name, value in model.graph.initializers.items() if _is_unread(value)]
    if not model.functions and not unread:
        return model
    copy = model.clone()
    for name in unread:
        del copy.graph.initializers[name]
    InlinePass()(copy)
    return copy


def _is_unread(value: ir.Value) -> bool:
    return not (value.uses() or value.is_graph_output() or value.is_graph_input())


def _evaluator_first(waiting: list[Candidate]) -> list[Candidate]:
    """The evaluator first: unlike engines, it has every operator in float64."""
    return sorted(waiting, key=lambda candidate: candidate.engine != EVALUATOR)


def widened(array: np.ndarray) -> np.ndarray:
    """A floating-point array as float64; any other array as it is."""
    floating = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if floating else array


def paired(own: Feeds, float64: Feeds | None, random: frozenset[str], longest_sum: int) -> Run:
    """Both runs of a model as a reference's run; float64 results that are not credible are left out.

    Args:
        own: The outputs in the model's types.
        float64: The outputs in float64; None if nothing runs the float64 model.
        random: The outputs that depend on random draws.
        longest_sum: The number of terms of the longest sum in the model.
    """
    found: dict[str, np.ndarray] = {}
    trusted: dict[str, np.ndarray] = {}
    for name, array in own.items():
        other = None if float64 is None else np.asarray(float64[name])
        other = None if other is None or other.shape != array.shape else other
        if not is_floating(array.dtype):
            found[name] = array if other is None else other
            continue
        own64 = array.astype(np.float64)
        other64 = own64 if other is None else other.astype(np.float64)
        right = believed(own64, other64, array.dtype)
        found[name] = np.where(right, other64, own64)
        trusted[name] = right & (other is not None) & (array.dtype != np.float64)
    return Run(own, found, trusted, random, longest_sum)


def believed(own: np.ndarray, float64: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The elements whose float64 result is credible: close enough to the original's own result.

    Another engine may have computed the float64 result. A fault of that engine would look like an error of the
    original, and would allow the engine under test the same error.

    Args:
        own: The original's result, converted to float64.
        float64: The result in float64.
        dtype: The type that the value has in the model.
    """
    finite = np.isfinite(own) & np.isfinite(float64)
    typical = float(np.median(np.abs(own[finite & (own != 0)]))) if (finite & (own != 0)).any() else 0.0
    with np.errstate(all="ignore"):
        close = np.abs(own - float64) <= _most_error(dtype) * np.maximum(np.abs(own), typical)
    found: np.ndarray = close | ~finite
    return found


def _most_error(dtype: np.dtype) -> float:
    """The largest error relative to the typical magnitude, at which half of the type's digits are lost."""
    return float(np.sqrt(float(ml_dtypes.finfo(dtype).eps)))
