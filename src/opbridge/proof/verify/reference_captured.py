"""A captured PyTorch program as the reference: its cases, its runs in both types, its near ties."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import OutputKind, SymIntArgument, TensorArgument

from opbridge.capture.capture import Captured
from opbridge.errors import InputError, OpbridgeError, described_error
from opbridge.proof.bisect.intermediates import CapturedValues
from opbridge.proof.verify.captured_graph import CapturedGraph, Observer, PairRun
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.eager import Eager
from opbridge.proof.verify.fresh import BOLD, SHUFFLED
from opbridge.proof.verify.inputs import InputSpecs, to_numpy, to_torch
from opbridge.proof.verify.journal import EngineJournal, Passed
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import Given, named_cases
from opbridge.proof.verify.near_ties import CapturedNearTies
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.perturbed import perturbed
from opbridge.proof.verify.reference import Case, Feeds, Run
from opbridge.proof.verify.verification import DEFAULT_SEED, PYTORCH, CaseResult
from opbridge.torch_graph.origins import Origin
from opbridge.torch_graph.sources import source_of_node

__all__ = ["CapturedReference", "output_positions"]

_MOST_REFUSED_SIZES = 24
_MOST_EDGES = 24


class CapturedReference:
    """See :class:`~opbridge.proof.verify.reference.Reference`.

    Args:
        captured: The model. Its program and its module are not changed.

    Attributes:
        specs: The model's inputs.
        graph: The captured graph.
    """

    name = label = PYTORCH

    def __init__(self, captured: Captured) -> None:
        self.outputs = tuple(captured.output_names)
        self.identity = captured.program.graph_module.code
        self.specs = InputSpecs(captured)
        self.graph = CapturedGraph(captured.program, output_positions(captured.program, len(self.outputs)))
        self.notes: list[str] = []
        self.run_seconds = 0.0
        self._program = captured.program
        self._eager = None if captured.module is None else Eager(captured.module, self.graph.positions)
        self._dimension_names = dict(captured.dimension_names)
        self._symbols = {name: symbol for symbol, name in captured.dimension_names.items()}
        self._seed = DEFAULT_SEED

    def run(self, feeds: Feeds, *, weights: np.random.Generator | None = None) -> Run:
        """Run the captured graph; see the protocol."""
        return self._as_run(self._pair(feeds, weights=weights))

    def draw(self, feeds: Feeds, number: int) -> Feeds:
        """The outputs with other random draws."""
        flat, _ = self.specs.given(feeds)
        run = self._counted(self.graph.run(flat, seed=self._seed + number, wide=False))
        return {name: to_numpy(value) for name, value in zip(self.outputs, run.own, strict=False)}

    def near_ties(self, feeds: Feeds, failing: Mapping[str, np.ndarray]) -> CapturedNearTies:
        """The near ties, by the float64 margins of every decision of the captured graph."""

        def replay(feeds: Feeds, observer: Observer) -> Run:
            return self._as_run(self._pair(feeds, observer=observer))

        return CapturedNearTies(self.graph, self.outputs, feeds, failing, replay, self._seed)

    def _pair(
        self, feeds: Feeds, *, observer: Observer | None = None, weights: np.random.Generator | None = None
    ) -> PairRun:
        flat, _ = self.specs.given(feeds)
        random = weights

        def moved(value: torch.Tensor) -> torch.Tensor:
            assert random is not None
            found: torch.Tensor = to_torch(perturbed(to_numpy(value), random), value)
            return found

        return self._counted(
            self.graph.run(flat, seed=self._seed, observer=observer, moved=None if random is None else moved)
        )

    def _counted(self, run: PairRun) -> PairRun:
        self.run_seconds += run.seconds
        return run

    def _as_run(self, run: PairRun) -> Run:
        own = {name: to_numpy(value) for name, value in zip(self.outputs, run.own, strict=False)}
        wide = {name: to_numpy(value) for name, value in zip(self.outputs, run.wide, strict=False)}
        floating = {name for name, array in own.items() if is_floating(array.dtype)}
        wide |= {name: np.asarray(wide[name], np.float64) for name in floating}
        return Run(
            own=own,
            wide=wide,
            trusted={name: np.full(own[name].shape, own[name].dtype != np.float64) for name in floating},
            random=frozenset(name for name, random in zip(self.outputs, run.random, strict=False) if random),
            longest_sum=run.longest_sum,
        )

    def cases(self, options: VerifyOptions, journal: EngineJournal) -> Iterator[Case | CaseResult | Passed]:
        """The user's own inputs, or fresh ones; see the protocol."""
        self._seed = options.seed
        if options.inputs is None:
            yield from self._fresh(options.modes.edge_sizes)
        else:
            yield from self._given(options.inputs, journal)

    def sizes_of(self, feeds: Feeds) -> dict[str, int]:
        """The sizes of the dynamic dimensions in these arrays."""
        return self._named(self.specs.given(feeds)[1])

    def lowest(self, dimension: str) -> int:
        """The smallest allowed size of a dynamic dimension."""
        return max(1, self.specs.sizes.ranges[self._symbols.get(dimension, dimension)][0])

    def resized(self, feeds: Feeds, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Arrays cut to smaller sizes of the dynamic dimensions."""
        return self.specs.resized(feeds, {self._symbols.get(name, name): size for name, size in sizes.items()})

    @contextlib.contextmanager
    def values(
        self, feeds: Feeds, run: Run, origins: Mapping[str, Origin], most_bytes: int
    ) -> Iterator[CapturedValues]:
        """The values of the captured graph; see the protocol."""
        nodes = zip(self.outputs, self.graph.output_nodes, strict=False)
        of_outputs = {name: Origin(node.name) for name, node in nodes if isinstance(node, torch.fx.Node)}
        yield CapturedValues(
            self.graph, self._program, {**of_outputs, **origins}, self.specs, feeds, run.longest_sum, seed=self._seed
        )

    def source_of(self, value: str, origins: Mapping[str, Origin]) -> str:
        """The user's line of a value of the engine's model."""
        origin = origins.get(value)
        nodes = self._program.graph.nodes
        node = None if origin is None else next((node for node in nodes if node.name == origin.node), None)
        source = None if node is None else source_of_node(node)
        return str(source) if source else ""

    def _named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the user's names of the dimensions, if there are any."""
        return {self._dimension_names.get(symbol, symbol): size for symbol, size in sizes.items()}

    def _given(self, inputs: Given, journal: EngineJournal) -> Iterator[Case | Passed]:
        """One case per mapping of the user's arrays; passed cases in ``journal`` are not run again.

        Raises:
            InputError: The inputs do not fit, or PyTorch refuses them.
        """
        for name, arrays in named_cases(inputs):
            flat, sizes = self.specs.given(arrays)
            passed = journal.begin(name, self.specs.feeds(flat))
            if passed is not None:
                yield passed
                continue
            try:
                yield self._case(name, sizes, flat)
            except OpbridgeError:
                raise
            except Exception as error:
                raise InputError(
                    f"PyTorch refuses the inputs {name}: {described_error(error)}",
                    fix="pass inputs that the model takes, of sizes within the exported ranges.",
                    details=str(error),
                ) from error

    def _fresh(self, edge_sizes: bool) -> Iterator[Case | CaseResult]:
        """The example's sizes, then two others of every dynamic dimension, then those at the edge if requested."""
        base, scale = self._at_base()
        yield base
        if isinstance(base, CaseResult):
            return
        done = [dict(self.specs.sizes.base)]
        for number, direction in enumerate((1, -1), 2):
            case, sizes, refused = self._at_other_sizes(f"sizes {number}", direction, scale, done)
            if case is not None:
                done.append(sizes)
                case.notes = [*case.notes, *refused]
                yield case
            elif base.sizes:
                self.notes.append("sizes of the dynamic dimensions could not all be tried: " + _untried(refused, done))
        if edge_sizes:
            yield from self._at_edges(scale, done)

    def _at_edges(self, scale: int, done: Sequence[Mapping[str, int]]) -> Iterator[Case]:
        """Every dynamic dimension at 0 and at 1, and at an odd or even size."""
        for number, (symbol, sizes) in enumerate(self.specs.sizes.edges(done)):
            if number == _MOST_EDGES:
                self.notes.append(f"of the sizes at the edge only the first {_MOST_EDGES} were tried")
                return
            dimension, size = self._named({symbol: 0}).popitem()[0], sizes[symbol]
            text = f"{dimension}={size}"
            try:
                case = self._case(f"size {text}", sizes, self.specs.fresh(sizes, self._seed, scale))
            except Exception as error:
                self.notes.append(f"PyTorch refuses {text}: {described_error(error)}")
                continue
            if self.specs.sizes.is_promised(sizes) or self._agrees(case):
                yield case
            else:
                self.notes.append(
                    f"at {text} the captured graph does not compute what the module computes; torch.export took for "
                    f"granted that {dimension} is at least 2, so the engine was not tried there"
                )

    def _agrees(self, case: Case) -> bool:
        judgement = Judgement(self, case.name, case.feeds, case.run, None, self._seed)
        return case.eager is None or judgement.eager_matches(case.eager) is not False

    def _case(self, name: str, sizes: Mapping[str, int], flat: list[Any]) -> Case:
        """Run PyTorch. Raises any exception that PyTorch raises for inputs that it does not accept."""
        start = time.perf_counter()
        try:
            eager = None if self._eager is None else self._eager.run(*self.specs.arguments(flat), seed=self._seed)
            run = self.graph.run(flat, seed=self._seed)
        finally:
            self.run_seconds += time.perf_counter() - start
        notes = [f"{target} has no float64 implementation: it ran in its own dtype" for target in run.narrow]
        results = None if eager is None else [to_numpy(value) for value in eager]
        return Case(name, self._named(sizes), self.specs.feeds(flat), self._as_run(run), results, notes)

    def _at_base(self) -> tuple[Case | CaseResult, int]:
        sizes, message = self.specs.sizes.base, ""
        for scale in range(BOLD, SHUFFLED + 1):
            try:
                return self._case("example sizes", sizes, self.specs.fresh(sizes, self._seed, scale)), scale
            except Exception as error:
                message = described_error(error)
        try:
            case = self._case("example sizes", sizes, list(self.specs.flat))
        except Exception as error:
            text = f"PyTorch itself refuses the example inputs: {described_error(error)}"
            return CaseResult("example sizes", self._named(sizes), "failed", error=text), SHUFFLED
        note = f"the example's own values were used, because PyTorch refuses fresh ones: {message}"
        case.notes = [*case.notes, note]
        return case, SHUFFLED

    def _at_other_sizes(
        self, name: str, direction: int, scale: int, done: Sequence[Mapping[str, int]]
    ) -> tuple[Case | None, dict[str, int], list[str]]:
        refused: list[str] = []
        for sizes in self.specs.sizes.others(direction, done):
            if len(refused) >= _MOST_REFUSED_SIZES:
                break
            try:
                flat = self.specs.fresh(sizes, self._seed + direction, scale)
                return self._case(name, sizes, flat), sizes, refused
            except Exception as error:
                text = ", ".join(f"{key}={value}" for key, value in self._named(sizes).items())
                refused.append(f"PyTorch refuses {text}: {described_error(error)}")
        return None, {}, refused


def _untried(refused: Sequence[str], done: Sequence[Mapping[str, int]]) -> str:
    if refused:
        return "; ".join(refused[:3]) + (f" (and {len(refused) - 3} more)" if len(refused) > 3 else "")
    return f"the ranges leave only {len(done)} combination{'' if len(done) == 1 else 's'}"


def output_positions(program: torch.export.ExportedProgram, count: int) -> list[int]:
    """The positions of the flattened outputs that the ONNX model has."""
    user = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    both = [i for i, argument in enumerate(user) if isinstance(argument, TensorArgument | SymIntArgument)]
    only_tensors = [i for i in both if isinstance(user[i], TensorArgument)]
    return both if len(both) == count else only_tensors
