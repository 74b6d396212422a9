"""The cases of a verification: inputs that PyTorch takes, with what it makes of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbridge.errors import InputError, OpbridgeError, described_error
from opbridge.proof.verify.eager import Eager
from opbridge.proof.verify.fresh import BOLD, SHUFFLED
from opbridge.proof.verify.inputs import InputSpecs, to_numpy
from opbridge.proof.verify.journal import EngineJournal, Passed
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.modes import Arrays, Given, Modes, named_cases
from opbridge.proof.verify.reference import PairRun, Reference
from opbridge.proof.verify.shrinking import Shrinkable, shrunk
from opbridge.proof.verify.special import examined
from opbridge.proof.verify.special_values import SpecialValues
from opbridge.proof.verify.verification import CaseResult

__all__ = ["Case", "Cases"]

_MOST_REFUSED_SIZES = 24
_MOST_EDGES = 24


@dataclasses.dataclass
class Case:
    """Inputs that PyTorch takes.

    Attributes:
        name: As in :class:`~opbridge.verification.CaseResult`.
        sizes: The size of every dynamic dimension, by torch's symbol.
        flat: The inputs, flattened.
        run: What the captured graph makes of them.
        eager: What the user's module makes of them; None without a module.
        notes: What a reader should know.
    """

    name: str
    sizes: dict[str, int]
    flat: list[Any]
    run: PairRun
    eager: list[Any] | None
    notes: list[str]


class Cases:
    """Makes the cases, and runs PyTorch on each.

    Args:
        captured: The model.
        reference: Its captured graph.
        eager: The user's module; None if there is none.
        seed: What the inputs are made from.

    Attributes:
        specs: The model's inputs.
        reference: As given.
        problem: The result where PyTorch itself takes no inputs.
        notes: What a reader should know of all cases.
        run_seconds: The time spent in PyTorch.
    """

    def __init__(self, captured: Any, reference: Reference, eager: Eager | None, seed: int) -> None:
        self.specs = InputSpecs(captured)
        self.problem: CaseResult | None = None
        self.notes: list[str] = []
        self.run_seconds = 0.0
        self._dimension_names = dict(getattr(captured, "dimension_names", {}))
        self.reference = reference
        self._eager = eager
        self._seed = seed

    def named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the user's names of the dimensions, where he gave any."""
        return {self._dimension_names.get(symbol, symbol): size for symbol, size in sizes.items()}

    def chosen(self, inputs: Given | None, modes: Modes, journal: EngineJournal) -> Iterator[Case | Passed]:
        """The user's own inputs, or fresh ones where he gave none; those that ``journal`` knows come from there.

        Raises:
            InputError: They do not fit, or PyTorch refuses them.
        """
        yield from self.fresh(modes.edge_sizes) if inputs is None else self.given(inputs, journal)

    def given(self, inputs: Given, journal: EngineJournal) -> Iterator[Case | Passed]:
        """One case per dict of the user's arrays; those that ``journal`` knows come from there.

        Raises:
            InputError: They do not fit, or PyTorch refuses them.
        """
        for name, arrays in named_cases(inputs):
            flat, sizes = self.specs.given(arrays)
            passed = journal.begin(name, self.specs.feeds(flat))
            if passed is not None:
                yield passed
                continue
            try:
                yield self.case(name, sizes, flat)
            except OpbridgeError:
                raise
            except Exception as error:
                raise InputError(
                    f"PyTorch refuses the inputs {name}: {described_error(error)}",
                    fix="pass inputs that the model takes, of sizes within the exported ranges.",
                    details=str(error),
                ) from error

    def fresh(self, edge_sizes: bool = False) -> Iterator[Case]:
        """The example's sizes, then two others of every dynamic dimension, then those at the edge where asked for."""
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
                self.notes.append("sizes of the dynamic dimensions could not all be tried: " + _untried(refused, done))
        if edge_sizes:
            yield from self._at_edges(boldness, done)

    def _at_edges(self, boldness: int, done: Sequence[Mapping[str, int]]) -> Iterator[Case]:
        """Every dynamic dimension at 0 and at 1, and at an odd or even size."""
        for number, (symbol, sizes) in enumerate(self.specs.sizes.edges(done)):
            if number == _MOST_EDGES:
                self.notes.append(f"of the sizes at the edge only the first {_MOST_EDGES} were tried")
                return
            dimension, size = self.named({symbol: 0}).popitem()[0], sizes[symbol]
            text = f"{dimension}={size}"
            try:
                case = self.case(f"size {text}", sizes, self.specs.fresh(sizes, self._seed, boldness))
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
        judgement = Judgement(self.reference, case.name, case.flat, case.run, None, self._seed)
        return case.eager is None or judgement.eager_matches(case.eager) is not False

    def special_values(
        self, case: Case | None, names: Sequence[str], engine: Callable[[Arrays], Arrays]
    ) -> tuple[SpecialValues, ...]:
        """What the engine makes of special values in a case's inputs, or in the example's.

        Args:
            case: A case that PyTorch takes.
            names: The outputs.
            engine: Runs the engine.
        """
        feeds = self.specs.feeds(self.specs.flat if case is None else case.flat)
        return tuple(examined(feeds, lambda changed: self._outputs(changed, names), engine, seed=self._seed))

    def _outputs(self, feeds: Arrays, names: Sequence[str]) -> tuple[Arrays, Arrays]:
        """Both results of the captured graph, without what depends on random draws."""
        run = self.rerun(feeds)[1]
        fixed = [(name, number) for number, name in enumerate(names) if not run.random[number]]
        own, wide = ({name: to_numpy(side[number]) for name, number in fixed} for side in (run.own, run.wide))
        return own, wide

    def rerun(self, feeds: Arrays) -> tuple[list[Any], PairRun]:
        """Arrays as flattened inputs, and what the captured graph makes of them; raises whatever it raises."""
        flat, _ = self.specs.given(feeds)
        run = self.reference.run(flat, seed=self._seed)
        self.run_seconds += run.seconds
        return flat, run

    def small(self, case: Case, fails: Callable[[Arrays], bool], seconds: float) -> Arrays:
        """A small input on which the engine fails as on ``case``.

        Args:
            case: A case that failed.
            fails: Whether the engine fails on some inputs in the same way.
            seconds: The time that the search may take.
        """
        limits = self.specs.sizes.ranges
        found = Shrinkable(
            feeds=self.specs.feeds(case.flat),
            sizes=case.sizes,
            lowest={symbol: max(1, limits[symbol][0]) for symbol in case.sizes},
            resized=self.specs.resized,
            fails=fails,
        )
        return shrunk(found, seconds)

    def case(self, name: str, sizes: Mapping[str, int], flat: list[Any]) -> Case:
        """Run PyTorch. Raises whatever it raises for inputs that it does not take."""
        start = time.perf_counter()
        try:
            eager = None if self._eager is None else self._eager.run(*self.specs.arguments(flat), seed=self._seed)
            run = self.reference.run(flat, seed=self._seed)
        finally:
            self.run_seconds += time.perf_counter() - start
        notes = [f"{target} has no float64 implementation: it ran in its own dtype" for target in run.narrow]
        return Case(name, dict(sizes), flat, run, eager, notes)

    def _at_base(self) -> tuple[Case | None, int]:
        sizes, message = self.specs.sizes.base, ""
        for boldness in range(BOLD, SHUFFLED + 1):
            try:
                return self.case("example sizes", sizes, self.specs.fresh(sizes, self._seed, boldness)), boldness
            except Exception as error:
                message = described_error(error)
        try:
            case = self.case("example sizes", sizes, list(self.specs.flat))
        except Exception as error:
            text = f"PyTorch itself refuses the example inputs: {described_error(error)}"
            self.problem = CaseResult("example sizes", self.named(sizes), "failed", error=text)
            return None, SHUFFLED
        case.notes.append(f"the example's own values were used, because PyTorch refuses fresh ones: {message}")
        return case, SHUFFLED

    def _at_other_sizes(
        self, name: str, direction: int, boldness: int, done: Sequence[Mapping[str, int]]
    ) -> tuple[Case | None, list[str]]:
        refused: list[str] = []
        for sizes in self.specs.sizes.others(direction, done):
            if len(refused) >= _MOST_REFUSED_SIZES:
                break
            try:
                return self.case(name, sizes, self.specs.fresh(sizes, self._seed + direction, boldness)), refused
            except Exception as error:
                text = ", ".join(f"{key}={value}" for key, value in self.named(sizes).items())
                refused.append(f"PyTorch refuses {text}: {described_error(error)}")
        return None, refused


def _untried(refused: Sequence[str], done: Sequence[Mapping[str, int]]) -> str:
    if refused:
        return "; ".join(refused[:3]) + (f" (and {len(refused) - 3} more)" if len(refused) > 3 else "")
    return f"the ranges leave only {len(done)} combination{'' if len(done) == 1 else 's'}"
