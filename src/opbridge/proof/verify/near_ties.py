"""Repeats both runs of a captured graph with near ties decided differently."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.captured_run import Observer, Resumption
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.decisions import Choice, Deciding, Exactness, plans, visible_choice
from opbridge.proof.verify.perturbed import perturbed_feeds
from opbridge.proof.verify.reference import Feeds, Observe, Run
from opbridge.proof.verify.row_matching import inferred_selection

__all__ = ["CapturedNearTies"]

_SURVEYS = 4
_INTEGER_SURVEYS = 2
_MOST_SELECTIONS = 8
"""The rows of outputs come from one of the last selections of a model; a detector may select for 91 classes before."""


class Replay(Protocol):
    """Runs the captured graph with an observer of its decisions."""

    def __call__(
        self,
        feeds: Feeds,
        observer: Observer,
        *,
        integers: np.random.Generator | None = None,
        resumption: Resumption | None = None,
    ) -> Run:
        """Run the graph; with ``integers``, the numbers that are made of integers are perturbed."""


@dataclasses.dataclass
class CapturedNearTies:
    """See :class:`~opbridge.proof.verify.reference.NearTies`.

    Attributes:
        graph: The captured graph.
        names: The ONNX names of its outputs.
        feeds: The inputs.
        failing: The engine's results for the outputs that fail.
        replay: Runs the captured graph.
        seed: The seed of perturbed inputs.
        objections: Why a decision of the engine is wrong, by the name of the output that shows it.
    """

    graph: CapturedGraph
    names: Sequence[str]
    feeds: Feeds
    failing: Mapping[str, np.ndarray]
    replay: Replay
    seed: int
    objections: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        indices = [index for index, name in enumerate(self.names) if name in self.failing]
        self._upstream = frozenset().union(*(self.graph.upstream(index) for index in indices))
        self._seen: dict[tuple[str, int], Exactness] = {}
        self._shown: dict[str, Choice] = {}
        self._search: tuple[Deciding, Run] | None = None
        self._engine_run: Run | None = None

    def followed(self, observe: Observe) -> Run | None:
        """See :meth:`opbridge.proof.verify.reference.NearTies.followed`."""
        searched = self._searched()
        if searched is None:
            return None
        choices = list(self._shown.values())
        shown = {choice.key for choice in choices}
        asked = {key: places for key, places in searched[0].open.items() if key in self._upstream - shown}
        observed = observe(asked.keys(), self.failing.keys())
        for origin, value in observed.values.items():
            if (origin.index or 0) in asked[origin.node]:
                choices.append(Choice(origin.node, origin.index or 0, torch.from_numpy(np.array(value))))
        search = Deciding(choices=choices, search=True, seen=self._seen)
        self._engine_run = self._attempt(search)
        if self._engine_run is None:
            return None
        for name in self.failing:
            upstream = self.graph.upstream(self.names.index(name))
            for key in search.refused.keys() & upstream:
                self.objections.setdefault(name, f"{key}: {search.refused[key]}")
        unknown = {key for key in self._near(search) if key not in search.followed and self._is_read(key)}
        same = all(_same(observed.outputs.get(name), result) for name, result in self.failing.items())
        return self._engine_run if same and not unknown and not search.refused else None

    def inferred(self) -> Iterator[Run]:
        """See :meth:`opbridge.proof.verify.reference.NearTies.inferred`."""
        searched = self._searched()
        if searched is None:
            return
        search, shown = searched[0], list(self._shown.values())
        selections = [key for key in search.rows if key in self._upstream]
        for key in reversed(selections[-_MOST_SELECTIONS:]):
            natural, count = search.rows[key]
            # Only what follows from the selection differs from one probe to the next.
            resumption = None if self.graph.node(key) is None else Resumption(key)

            def probe(
                chosen: torch.Tensor, natural: Choice = natural, resumption: Resumption | None = resumption
            ) -> Mapping[str, np.ndarray] | None:
                choice = dataclasses.replace(natural, value=chosen)
                deciding = Deciding(choices=[*shown, choice], seen=self._seen, forced=[choice.key])
                run = self._attempt(deciding, resumption)
                return None if run is None else {name: run.own[name] for name in self.failing}

            found = inferred_selection(natural.value, count, self.failing, probe)
            if found is not None:
                observer = Deciding(choices=[*shown, dataclasses.replace(natural, value=found)], seen=self._seen)
                run = self._attempt(observer)
                if run is not None and key in observer.followed:
                    yield run

    def _attempt(self, observer: Deciding, resumption: Resumption | None = None) -> Run | None:
        """A run of the reference; None if the graph refuses what follows from these decisions."""
        try:
            return self.replay(self.feeds, observer, resumption=resumption)
        except Exception:
            return None

    def runs(self) -> Iterator[Run]:
        """Runs with the engine's decisions if they are right or near ties, then with near ties decided differently."""
        searched = self._searched()
        if searched is None:
            return
        search, run = searched
        yield run
        if self._engine_run is not None:
            yield self._engine_run
        for variants in plans(self._near(search)):
            other = self._attempt(Deciding(variants, list(self._shown.values()), seen=self._seen))
            if other is not None:
                yield other

    def _searched(self) -> tuple[Deciding, Run] | None:
        """The near ties, and the run with the decisions that the engine shows; None without any decision."""
        if self._search is not None:
            return self._search
        self._shown = self._choices_shown()
        for feeds in perturbed_feeds(self.feeds, self.seed, _SURVEYS):
            # The graph may refuse perturbed inputs, for example by an assertion.
            with contextlib.suppress(Exception):
                self.replay(feeds, Deciding(seen=self._seen))
            if not self._seen:
                return None
        self._survey_integers()
        search = Deciding(choices=list(self._shown.values()), search=True, seen=self._seen)
        self._search = search, self.replay(self.feeds, search)
        refused = {name: search.refused.get(choice.key) for name, choice in self._shown.items()}
        self.objections.update({name: reason for name, reason in refused.items() if reason})
        return self._search

    def _survey_integers(self) -> None:
        """Find the numbers that are exact only because they are computed from integers.

        A resized image of integers is exact in PyTorch, and not in an engine that computes the same coefficients with a
        rounding error. The numbers that are made of integers are moved, and those that are rounded then are not exact.
        Their errors do not count, because integers such as a mask's 1 may be moved to where a model never gets.
        """
        random = np.random.default_rng(self.seed)
        for _ in range(_INTEGER_SURVEYS):
            with contextlib.suppress(Exception):
                self.replay(self.feeds, Deciding(seen=self._seen, exactness_only=True), integers=random)

    def _near(self, search: Deciding) -> dict[str, list[int]]:
        """The near ties before the outputs that do not fit."""
        return {k: v for k, v in search.near_ties.items() if k.split("/")[0].split("#")[0] in self._upstream}

    def _is_read(self, key: str) -> bool:
        """Whether another node reads a discrete result of a node: of a maximum, only the number may be read."""
        node = self.graph.node(key)
        value = None if node is None else node.meta.get("val")
        if node is None or not isinstance(value, tuple | list):
            return True
        read = {user.args[1] for user in node.users if user.target is operator.getitem}
        return any(place in read for place, item in enumerate(value) if not item.dtype.is_floating_point)

    def _choices_shown(self) -> dict[str, Choice]:
        """The decisions of the engine that are known, because they are outputs."""
        found = {}
        for name, node in zip(self.names, self.graph.output_nodes, strict=False):
            result = self.failing.get(name)
            if result is not None and not is_floating(result.dtype):
                choice = visible_choice(node, result)
                if choice is not None:
                    found[name] = choice
        return found


def _same(observed: np.ndarray | None, result: np.ndarray) -> bool:
    return observed is not None and observed.shape == result.shape and observed.tobytes() == result.tobytes()
