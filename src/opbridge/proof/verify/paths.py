"""The branches and loops of a captured graph: which of them ran, and inputs that may make the others run."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from opbridge.proof.verify.sizes import Sizes
from opbridge.torch_graph.compared_numbers import compared_numbers, filled
from opbridge.torch_graph.sources import source_of_node

__all__ = ["Paths", "other_sizes", "untaken", "varied"]

_BRANCHES = {"cond": 1}
_BODIES = {"while_loop": 1, "scan": 0, "map_impl": 0}
_MANY = 2
_MOST_NOTES = 5
_SECONDS = 10.0
_FACTORS = (4, 16, 64)
_STEPS = (1, -1, 2, -2, 3, -3, 5, -5, 7)
_MOST_ELEMENTS = 2**22

_Candidate = TypeVar("_Candidate")


@dataclasses.dataclass(frozen=True)
class _Inner:
    """A graph inside the captured graph that some runs skip.

    Attributes:
        name: Its name.
        around: The name of the graph that contains it; empty for the captured graph itself.
        text: What it is, for the reader.
        counts: How often it should run: a branch once, the body of a loop zero times, once, and more often.
    """

    name: str
    around: str
    text: str
    counts: frozenset[int]


class Paths:
    """The branches and loops of a captured graph, and how often each ran in the runs that were added.

    Args:
        module: The captured graph.

    Attributes:
        numbers: Numbers near those that it compares tensors with.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self._inner = tuple(_inner_graphs(module))
        self.numbers = compared_numbers(module) if self._inner else ()
        self._seen: dict[str, set[int]] = {}

    @property
    def has_loops(self) -> bool:
        """Whether the inputs decide how often a part of the graph runs."""
        return any(len(item.counts) > 1 for item in self._inner)

    def clear(self) -> None:
        """Forget all runs."""
        self._seen.clear()

    def add(self, runs: Mapping[str, int]) -> None:
        """Add a run, given as the number of times that each graph ran."""
        for item, count in self._counts(runs):
            self._seen.setdefault(item.name, set()).add(count)

    def is_new(self, runs: Mapping[str, int]) -> bool:
        """Whether in a run a branch is taken, or a loop runs as often, as in no run before."""
        return any(count in self._missing(item) for item, count in self._counts(runs))

    @property
    def complete(self) -> bool:
        """Whether every branch was taken, and every loop ran zero times, once, and more often."""
        return not any(map(self._missing, self._inner))

    def _counts(self, runs: Mapping[str, int]) -> list[tuple[_Inner, int]]:
        return [(item, min(runs.get(item.name, 0), _MANY)) for item in self._inner if item.around in runs]

    def _missing(self, item: _Inner) -> frozenset[int]:
        return item.counts - self._seen.get(item.name, set())

    def notes(self) -> list[str]:
        """What never ran, outermost branches and loops only."""
        ran = {name for name, counts in self._seen.items() if any(counts)}
        skipped = [item for item in self._inner if item.name not in ran and (not item.around or item.around in ran)]
        texts = list(dict.fromkeys(item.text for item in skipped))
        notes = [f"not verified: {text}; give inputs that lead there (--inputs)" for text in texts[:_MOST_NOTES]]
        return notes + ([f"not verified: {len(texts) - _MOST_NOTES} more"] if len(texts) > _MOST_NOTES else [])


def _inner_graphs(module: torch.fx.GraphModule) -> Iterator[_Inner]:
    for around, part in module.named_modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            operator = getattr(node.target, "_name", "") if node.op == "call_function" else ""
            place = source_of_node(node) or node.name
            prefix = f"{around}." if around else ""
            if operator in _BRANCHES:
                for number, value in enumerate((True, False), 1):
                    text = f"the branch for {value} of the condition at {place}"
                    yield _Inner(f"{prefix}{node.args[number].target}", around, text, frozenset({1}))
            elif operator in _BODIES:
                body = node.args[_BODIES[operator]].target
                yield _Inner(f"{prefix}{body}", around, f"the loop at {place}", frozenset(range(_MANY + 1)))


def untaken(
    paths: Paths, candidates: Iterable[_Candidate], run: Callable[[_Candidate], Mapping[str, int]]
) -> Iterator[_Candidate]:
    """The candidates that take a path that ``paths`` does not have yet.

    Args:
        paths: The paths; the caller adds the run of a candidate that it uses before it asks for the next one.
        candidates: Inputs. The search ends after ten seconds.
        run: Runs the captured graph on inputs, and returns how often each graph in it ran.
    """
    end = time.perf_counter() + _SECONDS
    for candidate in candidates:
        if paths.complete or time.perf_counter() > end:
            return
        try:
            runs = run(candidate)
        except Exception:  # inputs that the model does not take
            continue
        if paths.is_new(runs):
            yield candidate


def other_sizes(sizes: Sizes, elements: Callable[[Mapping[str, int]], int]) -> Iterator[dict[str, int]]:
    """Sizes near the example's, those of the other dimensions, and sizes far from it, for branches on sizes.

    Args:
        sizes: The dynamic dimensions, of which each is changed alone.
        elements: The number of elements of all inputs at given sizes.
    """
    for name, base in sizes.base.items():
        others = [base + step for step in _STEPS] + list(sizes.base.values())
        others += [*(base * factor for factor in _FACTORS), max(2, sizes.ranges[name][0])]
        for size in dict.fromkeys(others):
            found = {**sizes.base, name: size}
            if size != base and sizes.allowed(found) and sizes.is_promised(found) and elements(found) <= _MOST_ELEMENTS:
                yield found


def varied(values: Sequence[Any], positions: Sequence[int], numbers: Sequence[float] = ()) -> Iterator[list[Any]]:
    """Inputs that differ from the given ones in sign, in magnitude, or by being constant.

    Args:
        values: The flattened inputs.
        positions: The positions of the tensors to change: all of them at once, then each one alone.
        numbers: The constants, besides small ones.
    """
    groups = [list(positions), *([position] for position in positions if len(positions) > 1)]
    constants = [functools.partial(filled, number=number) for number in numbers]
    changes = {kind: [*(constants if kind != "bool" else ()), *own] for kind, own in _CHANGES.items()}
    for group in groups:
        for change in range(max(map(len, changes.values()))):
            changed = [*values]
            for position in group:
                own = changes[_kind(values[position])]
                changed[position] = own[change % len(own)](values[position]).to(values[position].dtype)
            yield changed


def _kind(value: torch.Tensor) -> str:
    if value.dtype is torch.bool:
        return "bool"
    return "floating point" if value.is_floating_point() or value.is_complex() else "integer"


def _span(value: torch.Tensor) -> float:
    return float(value.abs().double().max()) + 1 if value.numel() else 1.0


_CHANGES: dict[str, Sequence[Callable[[torch.Tensor], torch.Tensor]]] = {
    "floating point": (
        torch.neg,
        torch.abs,
        lambda value: -value.abs(),
        torch.zeros_like,
        torch.ones_like,
        lambda value: value + 3 * _span(value),
        lambda value: value - 3 * _span(value),
        lambda value: value * 100,
        lambda value: value * -100,
        lambda value: value / 100,
    ),
    "integer": (
        torch.zeros_like,
        torch.ones_like,
        lambda value: torch.full_like(value, 2),
        lambda value: value.amax().expand_as(value) if value.numel() else value,
        lambda value: value.amin().expand_as(value) if value.numel() else value,
        lambda value: value + 1,
        lambda value: value * 2,
        lambda value: -value,
    ),
    "bool": (torch.zeros_like, torch.ones_like, torch.logical_not),
}
