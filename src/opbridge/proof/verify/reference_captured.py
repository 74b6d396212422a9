"""A captured PyTorch program as the reference."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import OutputKind, SymIntArgument, TensorArgument

from opbridge.capture.capture import Captured
from opbridge.catalog.declare.nan import ABSENT
from opbridge.errors import InputError, OpbridgeError, described_error
from opbridge.proof.bisect.intermediates import CapturedValues
from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.captured_run import Observer, PairRun, Resumption
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.eager import Eager
from opbridge.proof.verify.edge_sizes import EdgeSizes, ProgramRefuses
from opbridge.proof.verify.fresh import EXAMPLE_ROWS, EXAMPLE_VALUES, LENGTHS, WIDE_RANGE
from opbridge.proof.verify.inputs import InputSpecs, numbers_as, to_numpy
from opbridge.proof.verify.journal import EngineJournal, Passed
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import Given, named_cases
from opbridge.proof.verify.nan import NanWatch
from opbridge.proof.verify.near_ties import CapturedNearTies
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.paths import Paths, other_sizes, untaken, varied
from opbridge.proof.verify.perturbed import perturbing
from opbridge.proof.verify.reference import Case, Feeds, Run
from opbridge.proof.verify.size_search import SizeSearch, shortened_refusals
from opbridge.proof.verify.time_limit import TooSlow, limit_for, within
from opbridge.proof.verify.verification import DEFAULT_SEED, NOT_VERIFIED, PYTORCH, CaseResult
from opbridge.torch_graph.origins import Origin
from opbridge.torch_graph.sources import source_of_node

__all__ = ["CapturedReference", "output_positions"]

_PATH_SEEDS = 8


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
        positions = output_positions(captured.program, len(self.outputs))
        self.graph = CapturedGraph(captured.program, positions, check_guards=captured.module is None)
        self.notes: list[str] = []
        self.run_seconds = 0.0
        self._program = captured.program
        self._eager = None if captured.module is None else Eager(captured.module, self.graph.positions)
        self._dimension_names = dict(captured.dimension_names)
        self._symbols = {name: symbol for symbol, name in reversed(self._dimension_names.items())}
        self._seed = DEFAULT_SEED
        self._assumed = bool(captured.assumptions)
        self._excludes_nan = False
        self._paths = Paths(self.graph.module)
        self._limit: float | None = None

    def run(self, feeds: Feeds, *, perturbing: np.random.Generator | None = None) -> Run:
        """Run the captured graph; see the protocol."""
        return self._as_run(*self._pair(feeds, generator=perturbing))

    def draw(self, feeds: Feeds, number: int) -> Feeds:
        """The outputs with other random draws."""
        flat, _ = self.specs.given(feeds)
        run = self._counted(self.graph.run(flat, seed=self._seed + number, float64=False))
        return {name: to_numpy(value) for name, value in zip(self.outputs, run.own, strict=False)}

    def near_ties(self, feeds: Feeds, failing: Mapping[str, np.ndarray]) -> CapturedNearTies:
        """The near ties, by the float64 margins of every decision of the captured graph."""

        def replay(feeds: Feeds, observer: Observer, **given: Any) -> Run:
            return self._as_run(*self._pair(feeds, observer=observer, **given))

        return CapturedNearTies(self.graph, self.outputs, feeds, failing, replay, self._seed)

    def _pair(
        self,
        feeds: Feeds,
        *,
        observer: Observer | None = None,
        generator: np.random.Generator | None = None,
        integers: np.random.Generator | None = None,
        resumption: Resumption | None = None,
    ) -> tuple[PairRun, str]:
        flat, _ = self.specs.given(feeds)
        watch = self._nan_watch(flat) if observer is generator is integers is None else None
        run = self.graph.run(
            flat,
            seed=self._seed,
            observer=observer,
            watch=watch,
            perturb=perturbing(generator),
            perturb_integers=perturbing(integers),
            resumption=resumption,
        )
        return self._counted(run), "" if watch is None else watch.found

    def _nan_watch(self, flat: Sequence[Any]) -> NanWatch | None:
        """A watch for NaN in a run on these inputs, if the contract excludes NaN."""
        return NanWatch(self.graph.module, flat) if self._excludes_nan else None

    def _counted(self, run: PairRun) -> PairRun:
        self.run_seconds += run.seconds
        return run

    def _as_run(self, run: PairRun, nan: str) -> Run:
        own = {name: to_numpy(value) for name, value in zip(self.outputs, run.own, strict=False)}
        float64 = {name: to_numpy(value) for name, value in zip(self.outputs, run.float64, strict=False)}
        floating = {name for name, array in own.items() if is_floating(array.dtype)}
        float64 |= {name: np.asarray(float64[name], np.float64) for name in floating}
        return Run(
            own=own,
            float64=float64,
            trusted={name: np.full(own[name].shape, own[name].dtype != np.float64) for name in floating},
            random=frozenset(name for name, random in zip(self.outputs, run.random, strict=False) if random),
            longest_sum=run.longest_sum,
            nan=nan,
            runs=run.runs,
        )

    def cases(self, options: VerifyOptions, journal: EngineJournal) -> Iterator[Case | CaseResult | Passed]:
        """The user's own inputs, or fresh ones; see the protocol."""
        self._seed = options.seed
        self._excludes_nan = options.nan == ABSENT
        self._paths.clear()
        given = options.inputs
        may_not_end = given is None and self._paths.has_loops
        self._limit = limit_for(lambda: self.graph.run(self.specs.flat, seed=self._seed)) if may_not_end else None
        for case in self._fresh(options.modes.edge_sizes) if given is None else self._given(given, journal):
            if isinstance(case, Case):
                self._paths.add(case.run.runs)
            yield case
        self.notes += [note for note in self._paths.notes() if note not in self.notes]

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

    def _given(self, inputs: Given, journal: EngineJournal) -> Iterator[Case | CaseResult | Passed]:
        """One case per mapping of the user's arrays; cases that ``journal`` records as passed are not run again.

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
            except ProgramRefuses as error:
                yield self._refused_by_program(name, sizes, "these inputs", error)
            except Exception as error:
                raise InputError(
                    f"PyTorch refuses the inputs {name}: {described_error(error)}",
                    fix="pass inputs that the model takes, of sizes within the exported ranges.",
                    details=str(error),
                ) from error

    def _fresh(self, edge_sizes: bool) -> Iterator[Case | CaseResult]:
        """The example's sizes, then others of each dynamic dimension, then edge sizes if requested."""
        base, scale = self._at_base()
        yield base
        if isinstance(base, CaseResult):
            return
        refused: list[str] = []
        reasons: list[str] = []
        search: SizeSearch[Case | CaseResult] = SizeSearch(
            self.specs.sizes,
            lambda sizes: self._at_sizes(f"sizes {len(search.done) + 1}", sizes, scale, refused),
            self.specs.elements,
        )
        for case in search.results():
            if case is not None:
                yield dataclasses.replace(case, notes=(*case.notes, *shortened_refusals(refused)))
            elif base.sizes:
                reasons = shortened_refusals(refused) or [f"the ranges leave only {len(search.done)} combinations"]
                self.notes.append(f"not all sizes of the dynamic dimensions could be tried: {reasons[0]}")
            refused.clear()
        for symbol in search.unmoved():
            name = self._dimension_names.get(symbol, symbol)
            text = f"No other size of the dynamic dimension {name} could be verified: {'; '.join(reasons)}"
            yield CaseResult(f"other sizes of {name}", {}, NOT_VERIFIED, error=text)
        yield from self._on_other_paths(scale)
        edges = EdgeSizes(
            self.specs.sizes,
            lambda symbol: self._dimension_names.get(symbol, symbol),
            lambda name, sizes: self._case(name, sizes, self.specs.fresh(sizes, self._seed, scale)),
            self._agrees,
            self.notes,
        )
        if edge_sizes:
            yield from edges.cases(search.done)
        else:
            edges.note_size_one(search.done)

    def _on_other_paths(self, scale: int) -> Iterator[Case]:
        """Inputs on which a branch is taken, or a loop runs as often, as in no case before."""
        number, base, specs, numbers = 1, self.specs.sizes.base, self.specs, self._paths.numbers
        positions = [item.position for item in specs.inputs if item.symbol is None]

        def candidates() -> Iterator[tuple[Mapping[str, int], list[Any]]]:
            yield from ((base, specs.fresh(base, self._seed + seed, scale)) for seed in range(1, _PATH_SEEDS + 1))
            start = specs.fresh(base, self._seed, scale)
            yield from ((base, specs.with_indices_of(start, flat)) for flat in varied(start, positions, numbers))
            for sizes in other_sizes(specs.sizes, specs.elements):
                start = specs.fresh(sizes, self._seed, scale)
                constant = itertools.islice(varied(start, positions, numbers), len(numbers))
                yield from ((sizes, flat) for flat in (start, *(specs.with_indices_of(start, one) for one in constant)))

        def run(item: tuple[Mapping[str, int], list[Any]]) -> Mapping[str, int]:
            return within(self._limit, lambda: self.graph.run(item[1], float64=False).runs)

        for sizes, flat in untaken(self._paths, candidates(), run):
            try:
                case = self._case(f"path {number}", sizes, flat)
            except Exception:
                continue
            if not case.run.nan:
                number += 1
                yield case

    def _agrees(self, case: Case) -> bool:
        judgement = Judgement(self, case.name, case.feeds, case.run, None, self._seed)
        return case.eager is None or judgement.eager_matches(case.eager) is not False

    def _case(self, name: str, sizes: Mapping[str, int], flat: list[Any]) -> Case:
        """Run PyTorch. Raises any exception that PyTorch raises for inputs that it does not accept."""
        start = time.perf_counter()
        try:
            eager, run, nan = within(self._limit, lambda: self._both(flat))
        finally:
            self.run_seconds += time.perf_counter() - start
        notes = [f"{target} has no float64 implementation: it ran in its own dtype" for target in run.without_float64]
        own = self._as_run(run, nan)
        results = None if eager is None else numbers_as(list(own.own.values()), eager)
        return Case(name, self._named(sizes), self.specs.feeds(flat), own, results, notes)

    def _both(self, flat: list[Any]) -> tuple[list[Any] | None, PairRun, str]:
        """The results of the module, if there is one, and of the captured graph."""
        eager = None if self._eager is None else self._eager.run(*self.specs.arguments(flat), seed=self._seed)
        return eager, *self._program_run(flat, eager is not None)

    def _program_run(self, flat: list[Any], accepted: bool) -> tuple[PairRun, str]:
        """Run the captured graph on inputs that eager PyTorch has accepted, or not been asked about."""
        watch = self._nan_watch(flat)
        try:
            run = self.graph.run(flat, seed=self._seed, watch=watch)
        except Exception as error:
            if accepted and not isinstance(error, TooSlow):
                raise ProgramRefuses(described_error(error)) from error
            raise
        return run, "" if watch is None else watch.found

    def _refused_by_program(self, name: str, sizes: Mapping[str, int], accepted: str, error: Exception) -> CaseResult:
        cause = f"PyTorch accepts {accepted}, but the captured program does not"
        cause = "The inputs violate an assumption of the model" if self._assumed else cause
        return CaseResult(name, self._named(sizes), "failed", False, f"{cause}: {error}")

    def _at_base(self) -> tuple[Case | CaseResult, int]:
        sizes, message = self.specs.sizes.base, ""
        outside: Case | None = None
        for scale in range(WIDE_RANGE, LENGTHS + 1):
            try:
                case = self._case("example sizes", sizes, self.specs.fresh(sizes, self._seed, scale))
            except ProgramRefuses as error:
                if not self._assumed:
                    return self._refused_by_program("example sizes", sizes, "fresh inputs", error), scale
                message = f"fresh ones violate an assumption of the model: {error}"
                continue
            except Exception as error:
                message = f"PyTorch refuses fresh ones: {described_error(error)}"
                continue
            if not case.run.nan:
                return case, scale
            outside = outside or case
        if outside is not None:
            return outside, EXAMPLE_VALUES
        try:
            case = self._case("example sizes", sizes, list(self.specs.flat))
        except Exception as error:
            text = f"PyTorch itself refuses the example inputs: {described_error(error)}"
            return CaseResult("example sizes", self._named(sizes), "failed", error=text), EXAMPLE_VALUES
        case.notes = [*case.notes, f"the example's own values were used, because {message}"]
        return case, EXAMPLE_VALUES

    def _at_sizes(
        self, name: str, sizes: Mapping[str, int], scale: int, refused: list[str]
    ) -> Case | CaseResult | None:
        """A case at other sizes; None, and the reason in ``refused``, if eager PyTorch does not accept them."""
        other = {symbol: size for symbol, size in sizes.items() if size != self.specs.sizes.base[symbol]}
        text = ", ".join(f"{key}={value}" for key, value in self._named(other).items())
        reasons: list[str] = []
        outside: Case | None = None
        for values in dict.fromkeys((scale, EXAMPLE_VALUES, LENGTHS, EXAMPLE_ROWS)):
            try:
                case = self._case(name, sizes, self.specs.fresh(sizes, self._seed + len(refused), values))
            except ProgramRefuses as error:
                if self._assumed:
                    reasons.append(f"at {text}, the inputs violate an assumption of the model: {error}")
                    continue
                if self.specs.sizes.is_promised(sizes):
                    return self._refused_by_program(name, sizes, text, error)
                reasons = [f"at {text}, a size below 2, the captured graph fails: {error}"]
                break
            except Exception as error:
                reasons.append(f"PyTorch refuses {text}: {described_error(error)}")
                continue
            if case.run.nan:
                outside = outside or case
                continue
            if self.specs.sizes.is_promised(sizes) or self._agrees(case):
                return case
            reasons = [f"at {text}, a size below 2, the captured graph does not compute what the module computes"]
            break
        if outside is not None:
            return outside
        refused.append(reasons[0])
        return None


def output_positions(program: torch.export.ExportedProgram, count: int) -> list[int]:
    """The positions of the flattened outputs that the ONNX model has."""
    user = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    both = [i for i, argument in enumerate(user) if isinstance(argument, TensorArgument | SymIntArgument)]
    only_tensors = [i for i in both if isinstance(user[i], TensorArgument)]
    return both if len(both) == count else only_tensors
