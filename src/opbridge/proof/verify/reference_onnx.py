"""An ONNX model as the reference."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from opbridge.atomic import TemporaryFolder
from opbridge.engines.base import Engine
from opbridge.errors import EngineCrashError, InputError, OpbridgeError
from opbridge.proof.bisect.onnx_values import OriginalValues
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.journal import EngineJournal, Passed
from opbridge.proof.verify.modes import Given, named_cases
from opbridge.proof.verify.onnx_inputs import OnnxInputs, OnnxSizes
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.original_runs import Candidate, OriginalRuns, paired
from opbridge.proof.verify.reference import Case, Feeds, Restart, Run, Unverifiable
from opbridge.proof.verify.size_search import SizeSearch
from opbridge.proof.verify.verification import DEFAULT_SEED
from opbridge.proof.verify.widened_model import longest_sum, random_outputs
from opbridge.torch_graph.origins import Origin

__all__ = ["OnnxReference"]

_MOST_TRIALS = 16
_T = TypeVar("_T")


class OnnxReference:
    """See :class:`~opbridge.proof.verify.reference.Reference`. A context manager.

    Args:
        original: The user's model.
        engine: The engine that is verified.
        examples: Arrays by input name that the model accepts, if known.
        own: The engines that may run the model in its own types; by default every candidate.
    """

    name = "the original"

    def __init__(
        self,
        original: ir.Model,
        engine: Engine,
        *,
        examples: Mapping[str, np.ndarray] | None = None,
        own: Sequence[Candidate] | None = None,
    ) -> None:
        self._original = original
        self._examples = examples
        self._seed = DEFAULT_SEED
        self._folder = TemporaryFolder()
        self._runs = OriginalRuns(original, engine, Path(self._folder.name), own)
        self._random = random_outputs(original)
        self._longest_sum = longest_sum(original)
        self._inputs: OnnxInputs | None = None
        self.outputs = tuple(str(value.name) for value in original.graph.outputs)
        self.identity = ""
        self.notes: list[str] = []
        self.run_seconds = 0.0

    def __enter__(self) -> OnnxReference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runs.__exit__(kind, error, traceback)
        self._folder.cleanup()

    @property
    def label(self) -> str:
        """A description of the reference."""
        return self._runs.label

    def run(self, feeds: Feeds, *, perturbing: np.random.Generator | None = None) -> Run:
        """Run the model in both types. Its weights are never perturbed, because they are part of a loaded file."""
        own, float64 = self._timed(lambda: self._runs.run(feeds))
        return paired(own, float64, self._random, self._longest_sum)

    def draw(self, feeds: Feeds, number: int) -> Feeds:
        """The outputs with other random draws: engines draw new numbers in every run."""
        return self._own(feeds)

    def near_ties(self, feeds: Feeds, failing: Mapping[str, np.ndarray]) -> None:
        """None: the margins of decisions inside an ONNX model are not known."""

    def cases(self, options: VerifyOptions, journal: EngineJournal) -> Iterator[Case | Passed | Restart]:
        """The user's own inputs, or fresh ones; see the protocol."""
        self._seed = options.seed
        if options.inputs is not None:
            yield from self._given(options.inputs, journal)
            return
        try:
            self._inputs = OnnxInputs(self._original, self._examples)
        except InputError as error:
            raise Unverifiable(error.message) from error
        yield from self._fresh(self._inputs, options.modes.edge_sizes)

    def sizes_of(self, feeds: Feeds) -> dict[str, int]:
        """The sizes of the dynamic dimensions in these arrays; empty if the model does not state its inputs."""
        return {} if self._inputs is None else self._inputs.sizes_of(feeds)

    def lowest(self, dimension: str) -> int:
        """The smallest allowed size of a dynamic dimension."""
        return 1

    def resized(self, feeds: Feeds, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Arrays cut to smaller sizes of the dynamic dimensions."""
        return dict(feeds) if self._inputs is None else self._inputs.resized(feeds, sizes)

    def values(self, feeds: Feeds, run: Run, origins: Mapping[str, Origin], most_bytes: int) -> OriginalValues:
        """The values of the model; see the protocol."""
        return OriginalValues(self._runs.opened, feeds, seed=self._seed, most_bytes=most_bytes)

    def source_of(self, value: str, origins: Mapping[str, Origin]) -> str:
        """Always empty: an ONNX model has no source lines."""
        return ""

    def _given(self, inputs: Given, journal: EngineJournal) -> Iterator[Case | Passed | Restart]:
        """The user's cases, on the first engine that runs all of them."""
        with contextlib.suppress(InputError):  # Inputs whose ranks or types the model does not state can't be shrunk.
            self._inputs = OnnxInputs(self._original)
        cases = named_cases(inputs)
        while self._runs.load_next():
            journal.again()
            try:
                for name, feeds in cases:
                    passed = journal.begin(name, feeds)
                    if passed is not None:
                        yield passed
                        continue
                    run = self.run(feeds)
                    self.identity = self.label
                    yield Case(name, {}, feeds, run)
            except OpbridgeError as error:
                self._runs.problems.append(error.message)
                yield Restart()
            else:
                return
        reasons = "; ".join(dict.fromkeys(self._runs.problems))
        raise Unverifiable(f"No engine runs the original model on the given inputs: {reasons}")

    def _fresh(self, inputs: OnnxInputs, edge_sizes: bool) -> Iterator[Case]:
        base = self._base(inputs)
        if base is None:
            reasons = "; ".join(dict.fromkeys(self._runs.problems)) or "all refuse every input that was tried"
            raise Unverifiable(f"No engine runs the original model, so there is nothing to compare with: {reasons}")
        sizes, scale, feeds = base
        yield Case("first sizes", sizes, feeds, self.run(feeds))
        refused: list[str] = []
        search: SizeSearch[Case] = SizeSearch(
            OnnxSizes(sizes),
            lambda other: self._at_sizes(f"sizes {len(search.done) + 1}", inputs, other, scale, refused),
            inputs.elements,
        )
        for case in search.results() if sizes else ():
            if case is not None:
                yield case
            else:
                self.notes += refused[:1]
            refused.clear()
        for name, edge in inputs.edges(sizes) if edge_sizes else ():
            feeds = inputs.feeds(edge, self._seed, scale)
            try:
                run = self.run(feeds)
            except OpbridgeError as error:
                self.notes.append(f"the original refuses {name.removeprefix('size ')}: {error.message}")
                continue
            yield Case(name, edge, feeds, run)

    def _base(self, inputs: OnnxInputs) -> tuple[dict[str, int], int, Feeds] | None:
        """Sizes and values that the model accepts, in the first engine that runs it."""
        while self._runs.load_next():
            for sizes, scale, feeds in _trials(inputs, self._seed):
                try:
                    outputs = self._own(feeds)
                except OpbridgeError as error:
                    if isinstance(error, EngineCrashError):
                        self._runs.problems.append(error.message)
                        break
                    self._runs.problems[:] = [*self._runs.problems[-3:], error.message]
                    continue
                if _is_comparable(outputs):
                    return sizes, scale, feeds
        return None

    def _at_sizes(
        self, name: str, inputs: OnnxInputs, sizes: Mapping[str, int], scale: int, refused: list[str]
    ) -> Case | None:
        """A case at other sizes; None, and the reason in ``refused``, if the original does not accept them."""
        feeds = inputs.feeds(sizes, self._seed + len(refused) + 1, scale)
        try:
            if _is_comparable(self._own(feeds)):
                return Case(name, sizes, feeds, self.run(feeds))
        except OpbridgeError as error:
            text = ", ".join(f"{key}={value}" for key, value in sizes.items())
            refused.append(f"the original refuses {text}: {error.message}")
        return None

    def _own(self, feeds: Feeds) -> Feeds:
        return self._timed(lambda: self._runs.own(feeds))

    def _timed(self, run: Callable[[], _T]) -> _T:
        started = time.perf_counter()
        try:
            return run()
        finally:
            self.run_seconds += time.perf_counter() - started


def _trials(inputs: OnnxInputs, seed: int) -> Iterator[tuple[dict[str, int], int, Feeds]]:
    count = 0
    for sizes in inputs.first_sizes():
        for scale in inputs.scales():
            count += 1
            if count > _MOST_TRIALS:
                return
            yield sizes, scale, inputs.feeds(sizes, seed, scale)


def _is_comparable(outputs: Feeds) -> bool:
    """Whether some output has an element that is not NaN; outputs that are all NaN prove nothing."""
    arrays = [np.asarray(array) for array in outputs.values()]
    return any(array.size and not (is_floating(array.dtype) and np.isnan(array).all()) for array in arrays)
