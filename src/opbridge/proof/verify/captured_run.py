"""What a run of the captured graph receives, shows and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from opbridge.proof.verify.captured_graph_inner import Pair

__all__ = ["Decision", "Observer", "PairRun", "Resumption", "Watch"]


@dataclasses.dataclass
class Decision:
    """One run of a node that turns floating-point numbers into a discrete result.

    Attributes:
        key: The node's name, preceded by the names of the nodes whose graphs contain it; "#2" marks a repetition in a
            loop.
        target: The node's operator.
        own_args: The positional arguments of the run in the model's dtype.
        own_kwargs: The keyword arguments of the run in the model's dtype.
        float64_args: The positional arguments of the float64 run.
        float64_kwargs: The keyword arguments of the float64 run.
        own: The result in the model's dtype.
        float64: The result of the float64 run, with the decisions of ``own``.
    """

    key: str
    target: Any
    own_args: tuple[Any, ...]
    own_kwargs: dict[str, Any]
    float64_args: tuple[Any, ...]
    float64_kwargs: dict[str, Any]
    own: Any
    float64: Any


Watch = Callable[[str, Any, Any, bool], None]


class Observer(Protocol):
    """Receives every decision as it is made, and may replace its two results."""

    def decide(self, decision: Decision) -> tuple[Any, Any]:
        """Return the results to continue with: in the model's dtype, and in float64."""


@dataclasses.dataclass
class Resumption:
    """A node at which further runs begin, with the values that the first run had before it.

    Attributes:
        node: The name of a node of the captured graph itself.
        values: The values before the node; None until a run has reached it, and if runs can't begin there.
    """

    node: str
    values: dict[torch.fx.Node, Pair] | None = None


@dataclasses.dataclass
class PairRun:
    """Both results of one run.

    Attributes:
        own: The outputs in the model's dtype.
        float64: The outputs of the float64 run.
        random: For each output, whether it depends on random draws.
        without_float64: Operators without a float64 implementation, which ran in their own dtype in both runs.
        longest_sum: The largest number of terms that one node may have added.
        seconds: The time of the run.
        runs: How often each graph ran, by its name; that of the captured graph itself is empty.
    """

    own: list[Any]
    float64: list[Any]
    random: list[bool]
    without_float64: tuple[str, ...]
    longest_sum: int
    seconds: float
    runs: Mapping[str, int]
