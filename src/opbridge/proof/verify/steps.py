"""Verifies a model with state over several runs in a row: each run takes the state that the engine gave in the last."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from opbridge.capture.capture import Captured, StateBuffer
from opbridge.capture.stateful import Stateful
from opbridge.errors import OpbridgeError
from opbridge.proof.verify.fresh import EXAMPLE_VALUES, WIDE_RANGE
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference import Feeds, Run
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import (
    NOT_VERIFIED,
    OUTSIDE,
    CaseResult,
    Comparison,
    Verification,
    outside_text,
)
from opbridge.proof.verify.verify import RunsFeeds
from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.outputs import opened
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.state import keeping_state

__all__ = ["STEPS", "with_steps"]

STEPS = 4
"""The number of runs in a row. A state that one run misuses shows in the next; more runs only repeat this."""


def with_steps(
    found: Verification, reference: CapturedReference, captured: Captured, session: RunsFeeds, options: VerifyOptions
) -> Verification:
    """Add several runs in a row to the verification of a model with state.

    In each run, the engine is compared with the captured program on the same inputs and the same state, so that
    rounding errors do not add up over the runs. The user's module runs beside it: its buffers get the engine's state,
    it is called as the user calls it, and its outputs and buffers are compared with the captured program too. Whatever
    else changes in the module from call to call, such as a Python counter, shows as a difference there.

    Args:
        found: The verification of single runs.
        reference: The captured program.
        captured: The capture, with its state.
        session: The model in the engine.
        options: How to verify.
    """
    runs = _Runs(reference, captured, session, options)
    module = captured.module.module if isinstance(captured.module, Stateful) else None
    if module is None:
        cases = list(runs.all(None))
    else:
        with keeping_state(module), frozen(module):
            cases = list(runs.all(module))
    verdicts = {found.verdict, *(case.verdict for case, _ in cases)}
    matches = [case.eager_matches for case, _ in cases if case.eager_matches is not None]
    before = found.eager_matches_capture
    judged = NOT_VERIFIED if OUTSIDE in verdicts else found.verdict
    return dataclasses.replace(
        found,
        verdict=next((verdict for verdict in ("error", "failed") if verdict in verdicts), judged),
        cases=(*found.cases, *(case for case, _ in cases)),
        comparisons=(*found.comparisons, *(item for _, items in cases for item in items)),
        error=found.error or next((case.error for case, _ in cases if case.error), None),
        eager_matches_capture=all([before is not False, *matches]) if matches or before is not None else None,
    )


class _Runs:
    """Runs in a row."""

    def __init__(
        self, reference: CapturedReference, captured: Captured, session: RunsFeeds, options: VerifyOptions
    ) -> None:
        self._reference = reference
        self._session = session
        self._options = options
        self._state: Sequence[StateBuffer] = captured.state
        self._initial = {item.input: to_numpy(captured.kwargs[item.input]) for item in captured.state}
        self._sizes = reference.specs.sizes.base

    def all(self, module: torch.nn.Module | None) -> Iterator[tuple[CaseResult, Sequence[Comparison]]]:
        """Yield the result and the comparisons of each run, until the engine fails."""
        state: Feeds = self._initial
        for number in range(1, STEPS + 1):
            flat, feeds, run = self._inputs(number, state)
            if run.nan:
                yield self._result(number, OUTSIDE, None, outside_text(run.nan)), []
                return
            judgement = Judgement(
                self._reference, f"step {number}", feeds, run, self._options.tolerance, self._options.seed
            )
            eager = None if module is None else self._eager(module, flat, state)
            matches = None if eager is None else judgement.eager_matches(eager)
            try:
                again = functools.partial(self._session.run, feeds)
                results = again()
                compared = judgement.compare(results, again)
            except OpbridgeError as error:
                yield self._result(number, "error", matches, error.message), []
                return
            passed = matches is not False and all(item.passed for item in compared)
            yield self._result(number, "passed" if passed else "failed", matches, None), compared
            if any(item.output not in results for item in self._state):
                return
            state = {item.input: results[item.output] for item in self._state}

    def _result(self, number: int, verdict: Any, matches: bool | None, error: str | None) -> CaseResult:
        sizes = self._reference.sizes_of(self._reference.specs.feeds(self._reference.specs.flat))
        given = "the initial state" if number == 1 else f"the state that step {number - 1} returned"
        notes = [f"with {given}"]
        if matches is False and number > 1:
            notes.append("if only this step differs from the module, something beside its buffers changes in each call")
        return CaseResult(f"step {number}", sizes, verdict, matches, error, tuple(notes))

    def _inputs(self, number: int, state: Feeds) -> tuple[list[Any], dict[str, np.ndarray], Run]:
        """Fresh inputs with a state, and what PyTorch computes from them; the example's if PyTorch refuses others."""
        specs = self._reference.specs
        for scale in range(WIDE_RANGE, EXAMPLE_VALUES + 1):
            flat = specs.fresh(self._sizes, self._options.seed + number, scale)
            feeds = {**specs.feeds(flat), **state}
            try:
                return flat, feeds, self._reference.run(feeds)
            except Exception:  # PyTorch may raise anything for inputs that it does not accept.
                continue
        flat = list(specs.flat)
        feeds = {**specs.feeds(flat), **state}
        return flat, feeds, self._reference.run(feeds)

    def _eager(self, module: torch.nn.Module, flat: Sequence[Any], state: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs of the user's module, called with this state in its buffers, and its buffers afterwards."""
        specs = self._reference.specs
        fed, _ = specs.given({**specs.feeds(flat), **state})
        args, kwargs = specs.arguments(fed)
        with own_random_numbers(self._options.seed), torch.no_grad():
            for item in self._state:
                operator.attrgetter(item.buffer)(module).copy_(kwargs.pop(item.input))
            outputs = opened(module(*args, **kwargs))
            after = tuple(operator.attrgetter(item.buffer)(module) for item in self._state)
            leaves = [
                value.clone() if isinstance(value, torch.Tensor) else value
                for value in torch.utils._pytree.tree_leaves((outputs, after))
            ]
        positions = self._reference.graph.positions
        return [to_numpy(leaves[position]) for position in positions if position < len(leaves)]
