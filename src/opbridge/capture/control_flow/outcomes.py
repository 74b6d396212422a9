"""Runs a function once for each outcome of an ``if`` in a function that it calls.

This is for an ``if`` after which a function returns values of different forms, such as None and a tensor::

    def mask_of(tokens):                       def forward(self, tokens):
        mask = tokens == PAD                       def run(tokens):
        if not mask.any():                             return self.layers(tokens, mask_of(tokens))
            return None                  ->        return flow.for_each_outcome(lambda: run(tokens), arguments, site)
        return mask

In each run, Python decides the ``if``, and the runs become the branches of a ``torch.cond``. Its condition comes from a
further run that ends at the ``if``.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.capture.control_flow.conditions import as_tensor
from opbridge.capture.control_flow.site import Site, refuse
from opbridge.torch_graph.subgraphs import known_outside, run_subgraph, trace_subgraph, tracer

__all__ = ["decided", "deciding", "next_undecided"]

_MOST = 3
"""The largest number of ``if`` statements that are decided in one run: each doubles the number of runs."""


class _ReachedError(BaseException):
    """Ends a run at the ``if`` whose condition is wanted; no ``except Exception`` of the model catches it."""

    def __init__(self, truth: Any, site: Site) -> None:
        super().__init__()
        self.truth = truth
        self.site = site


@dataclasses.dataclass
class _Run:
    """One run of a function.

    Attributes:
        sites: The ``if`` statements.
        outcomes: The outcomes that are decided, in the order in which the statements run.
        ends: Whether the run ends at the first ``if`` that is not decided.
        tracer: What traces the run; the graph of a branch inside it has another, and its conditions are not known here.
        position: The number of outcomes that were used.
    """

    sites: Sequence[Site]
    outcomes: tuple[bool, ...]
    ends: bool
    tracer: Any
    position: int = 0


_runs: contextvars.ContextVar[tuple[_Run, ...]] = contextvars.ContextVar("runs", default=())


@contextlib.contextmanager
def deciding(sites: Sequence[Site], outcomes: tuple[bool, ...], *, ends: bool = False) -> Iterator[None]:
    """Decide ``if`` statements inside the block.

    Args:
        sites: The ``if`` statements.
        outcomes: Their outcomes, in the order in which they run; those that follow are not decided.
        ends: Whether the first ``if`` that is not decided ends the run.
    """
    token = _runs.set((*_runs.get(), _Run(sites, outcomes, ends, tracer())))
    try:
        yield
    finally:
        _runs.reset(token)


def decided(truth: Any, site: Site) -> Any:
    """The condition of an ``if``, or the outcome that is decided for it in this run."""
    for run in _runs.get():
        if site in run.sites and run.tracer is tracer():
            if run.position < len(run.outcomes):
                run.position += 1
                return run.outcomes[run.position - 1]
            if run.ends:
                raise _ReachedError(truth, site)
    return truth


def next_undecided(
    run: Callable[[], Any], sites: Sequence[Site], outcomes: tuple[bool, ...]
) -> tuple[Any, Site] | None:
    """The condition and the place of the first ``if`` in a run that is not decided; None if there is none.

    Args:
        run: The function.
        sites: The ``if`` statements.
        outcomes: The outcomes that are decided, in the order in which the statements run.
    """
    if len(outcomes) == _MOST:
        return None
    found: list[_ReachedError] = []

    def until_reached() -> list[Tensor]:
        try:
            with deciding(sites, outcomes, ends=True):
                run()
        except _ReachedError as reached:
            found.append(reached)
            return [as_tensor(reached.truth)]
        return []

    subgraph = trace_subgraph(until_reached)
    if not found:
        return None
    (reached,) = found
    if subgraph.mutated:
        refuse(
            reached.site,
            "the values that its branches return differ in form, and a tensor is changed in place before it",
            "return values of one form, or compute a new tensor.",
        )
    if isinstance(reached.truth, torch.SymBool) and known_outside(reached.truth):
        return reached.truth, reached.site
    (truth,) = run_subgraph(subgraph.module, *subgraph.inputs)
    return truth, reached.site
