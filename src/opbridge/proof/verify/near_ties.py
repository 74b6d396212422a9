"""The near ties of a captured graph: both its runs replayed with near ties decided differently."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from opbridge.proof.verify.captured_graph import CapturedGraph, Observer
from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.decisions import Choice, Deciding, Exactness, plans, visible_choice
from opbridge.proof.verify.perturbed import perturbed_feeds
from opbridge.proof.verify.reference import Feeds, Run

__all__ = ["CapturedNearTies"]

_SURVEYS = 4
Replay = Callable[[Feeds, Observer], Run]


@dataclasses.dataclass
class CapturedNearTies:
    """See :class:`~opbridge.proof.verify.reference.NearTies`.

    Attributes:
        graph: The captured graph.
        names: The ONNX names of its outputs.
        feeds: The inputs.
        failing: The engine's results for the outputs that do not fit.
        replay: Runs the captured graph with an observer of its decisions.
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

    def runs(self) -> Iterator[Run]:
        """Runs with the engine's own decisions where they are right or near ties, then with each near tie moved."""
        shown = self._shown()
        choices = list(shown.values())
        seen: dict[tuple[str, int], Exactness] = {}
        for feeds in perturbed_feeds(self.feeds, self.seed, _SURVEYS):
            # The graph may refuse inputs that have moved, at an assertion for example.
            with contextlib.suppress(Exception):
                self.replay(feeds, Deciding(seen=seen))
            if not seen:
                return
        search = Deciding(choices=choices, search=True, seen=seen)
        run = self.replay(self.feeds, search)
        self.objections.update(
            {name: search.refused[choice.key] for name, choice in shown.items() if choice.key in search.refused}
        )
        yield run
        indices = [index for index, name in enumerate(self.names) if name in self.failing]
        upstream = frozenset().union(*(self.graph.upstream(index) for index in indices))
        near = {k: v for k, v in search.near_ties.items() if k.split("/")[0].split("#")[0] in upstream}
        for variants in plans(near):
            yield self.replay(self.feeds, Deciding(variants, choices, seen=seen))

    def _shown(self) -> dict[str, Choice]:
        """The decisions that the engine shows, because they are outputs."""
        found = {}
        for name, node in zip(self.names, self.graph.output_nodes, strict=False):
            result = self.failing.get(name)
            if result is not None and not is_floating(result.dtype):
                choice = visible_choice(node, result)
                if choice is not None:
                    found[name] = choice
        return found
