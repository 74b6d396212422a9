"""Finds the nodes of a PyTorch operator that do not compute what PyTorch computes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.bundle.captured import captured_of_bundle
from opbridge.capture.capture import Captured
from opbridge.capture.entry import as_entry
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.catalog.declare.operator import without_kernels
from opbridge.errors import InputError, VerificationError
from opbridge.proof.bisect.intermediates import CapturedValues, Intermediate, judged
from opbridge.proof.bisect.intermediates_engine import EngineModel, marked_model
from opbridge.proof.compare.pairing import Paired, pair
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.compare.torch_sides import TorchSession, captured_entry
from opbridge.proof.compare.torch_value_matching import MatchedModel, match_values
from opbridge.proof.reduce.failure import failure_of_comparisons
from opbridge.proof.reduce.problem import Feeds, Problem
from opbridge.proof.reduce.trials import Tried
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.trace import TracedValue
from opbridge.proof.verify.verification import DEFAULT_SEED, Comparison
from opbridge.proof.verify.verify import verify

__all__ = ["WrongSegment", "wrong_segment"]


@dataclasses.dataclass(frozen=True)
class WrongSegment:
    """Nodes that do not compute what PyTorch computes.

    Attributes:
        problem: The nodes as a model with PyTorch's values as inputs.
        tried: The wrong result.
        nodes_before: The number of nodes in the whole model.
        fault: A sentence that names the operator that the nodes implement.
    """

    problem: Problem
    tried: Tried
    nodes_before: int
    fault: str


def wrong_segment(
    side: ModelSide, reference: Any, inputs: Sequence[Feeds] | None, seed: int | None, ops: Ops
) -> WrongSegment | None:
    """Find the nodes between a correct value and a wrong value, both matched with PyTorch.

    Args:
        side: The model.
        reference: The entry; by default the bundle's own.
        inputs: The user's inputs.
        seed: The seed of fresh inputs.
        ops: The ``ops`` argument of ``export``.

    Returns:
        The segment; None if the model computes what PyTorch computes.

    Raises:
        VerificationError: The model is wrong, but no wrong node was found.
    """
    captured = _captured(side, reference, ops)
    with contextlib.closing(side.load()) as session, without_kernels():
        pairing = pair(TorchSession(captured), session, names=("the PyTorch model", side.text))
        matched = match_values(captured, side, pairing)
        if matched is None:
            raise InputError(
                f"The inputs of {side.text} have other types than those of the PyTorch model.",
                fix="export the model again, and reduce the new one.",
            )
        runs = Paired(session, pairing)
        options = VerifyOptions(DEFAULT_SEED if seed is None else seed, inputs)
        reference = CapturedReference(captured)
        verified = verify(reference, runs, engine=side.label, options=options, observable=matched.observable)
        if verified.passed:
            return None
        divergence = next((item for item in verified.divergences if item.verdict == "diverges"), None)
        if divergence is None or divergence.first is None:
            reason = verified.divergences[0].detail if verified.divergences else verified.error or "no output fits"
            raise VerificationError(
                f"{side.label} does not compute what PyTorch does, and no node can be named: {reason}",
                fix="run opbridge verify, or opbridge compare with another engine, for more information.",
            )
        case = [result.name for result in verified.cases].index(divergence.case)
        return _segment(captured, matched, divergence.first, runs.seen[case])


def _captured(side: ModelSide, reference: Any, ops: Ops) -> Captured:
    if side.bundle is not None:
        return captured_of_bundle(side.bundle, reference, ops)
    entry = as_entry(reference)
    return captured_entry(entry, Catalog.load(ops))


def _segment(captured: Captured, matched: MatchedModel, first: TracedValue, feeds: Feeds) -> WrongSegment:
    values = _values(captured, matched, feeds)
    with EngineModel(matched.observable.model, matched.observable.load) as model:
        known = [name for name in model.values if name in values.names]
        nodes, ends = model.segment(first.value, known)
        right: dict[str, Intermediate] = {}
        values.visit({first.value, *ends}, right.__setitem__)
        given = {name: right[name].own for name in ends}
        result = model.run([first.value], feeds, given)[first.value]
        assert not isinstance(matched.observable.model, Path)
        part, stand_ins = marked_model(matched.observable.model, [first.value], given)
        everything = {**feeds, **{stand_ins[name]: given[name] for name in stand_ins}}
        taken = {str(value.name): everything[str(value.name)] for value in part.graph.inputs}
        nodes_before = model.depth
    comparison = _compared(first.value, result, right[first.value], values.longest_sum)
    tried = Tried(failure_of_comparisons([comparison]), {first.value: right[first.value].own}, (comparison,))
    return WrongSegment(Problem(part, taken), tried, nodes_before, _fault(len(nodes), first))


def _fault(count: int, first: TracedValue) -> str:
    """A sentence that names the operator that the nodes implement."""
    place = f" at {first.source}" if first.source else ""
    operator = f"PyTorch's {first.target or 'operator'}{place}"
    if count == 1:
        return f"This node implements {operator}, but does not compute its result."
    return f"These {count} nodes implement {operator}, but do not compute its result."


def _values(captured: Captured, matched: MatchedModel, feeds: Mapping[str, np.ndarray]) -> CapturedValues:
    reference = CapturedReference(captured)
    origins = {**matched.origins_of_outputs(captured), **matched.observable.origins}
    longest_sum = reference.run(feeds).longest_sum
    return CapturedValues(
        reference.graph, captured.program, origins, reference.specs, feeds, longest_sum, seed=DEFAULT_SEED
    )


def _compared(name: str, result: np.ndarray, right: Intermediate, longest_sum: int) -> Comparison:
    status, verdict = judged(result, right, longest_sum=longest_sum)
    gap = 0.0
    if result.shape == right.own.shape and result.dtype.kind != "b":
        with np.errstate(all="ignore"):
            gap = float(np.nanmax(np.abs(result.astype(np.float64) - right.own.astype(np.float64)), initial=0.0))
    return Comparison(
        name,
        "",
        status,
        max_abs=gap,
        engine_error=verdict.engine_error,
        torch_error=verdict.torch_error,
        ratio=verdict.ratio,
        budget=verdict.budget,
        detail=verdict.detail,
    )
