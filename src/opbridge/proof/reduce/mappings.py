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
from opbridge.capture.entry import load_entry
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.catalog.declare.operator import without_kernels
from opbridge.errors import InputError, VerificationError
from opbridge.proof.bisect.intermediates import CapturedValues, Intermediate, judged
from opbridge.proof.bisect.intermediates_engine import EngineModel, marked_model
from opbridge.proof.compare.pairing import Paired, pair
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.compare.torch_insides import TorchInside, inside_of
from opbridge.proof.compare.torch_sides import TorchSession, captured_entry
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
        told: A sentence that names the operator that the nodes implement.
    """

    problem: Problem
    tried: Tried
    nodes_before: int
    told: str


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
        inside = inside_of(captured, side, pairing)
        if inside is None:
            raise InputError(
                f"{side.text} takes other types than the PyTorch model.", fix="export the model again, and reduce that."
            )
        runs = Paired(session, pairing)
        options = VerifyOptions(DEFAULT_SEED if seed is None else seed, inputs)
        reference = CapturedReference(captured)
        verified = verify(reference, runs, engine=side.label, options=options, inside=inside.inside)
        if verified.passed:
            return None
        departure = next((item for item in verified.departures if item.verdict == "departs"), None)
        if departure is None or departure.first is None:
            said = verified.departures[0].detail if verified.departures else verified.error or "no output fits"
            raise VerificationError(
                f"{side.label} does not compute what PyTorch does, and no node can be named: {said}",
                fix="see opbridge verify; opbridge compare with another engine may tell more.",
            )
        case = [result.name for result in verified.cases].index(departure.case)
        return _segment(captured, inside, departure.first, runs.seen[case])


def _captured(side: ModelSide, reference: Any, ops: Ops) -> Captured:
    if side.bundle is not None:
        return captured_of_bundle(side.bundle, reference, ops)
    entry = load_entry(str(reference)) if isinstance(reference, str | Path) else reference
    return captured_entry(entry, Catalog.load(ops))


def _segment(captured: Captured, inside: TorchInside, first: TracedValue, feeds: Feeds) -> WrongSegment:
    values = _values(captured, inside, feeds)
    with EngineModel(inside.inside.model, inside.inside.load) as model:
        known = [name for name in model.values if name in values.names]
        nodes, ends = model.segment(first.value, known)
        right: dict[str, Intermediate] = {}
        values.visit({first.value, *ends}, right.__setitem__)
        given = {name: right[name].own for name in ends}
        result = model.run([first.value], feeds, given)[first.value]
        assert not isinstance(inside.inside.model, Path)
        part, stand_ins = marked_model(inside.inside.model, [first.value], given)
        everything = {**feeds, **{stand_ins[name]: given[name] for name in stand_ins}}
        taken = {str(value.name): everything[str(value.name)] for value in part.graph.inputs}
        whole = model.depth
    comparison = _compared(first.value, result, right[first.value], values.longest_sum)
    tried = Tried(failure_of_comparisons([comparison]), {first.value: right[first.value].own}, (comparison,))
    return WrongSegment(Problem(part, taken), tried, whole, _told(len(nodes), first))


def _told(count: int, first: TracedValue) -> str:
    """A sentence that names the operator that the nodes implement."""
    place = f" at {first.source}" if first.source else ""
    operator = f"PyTorch's {first.target or 'operator'}{place}"
    if count == 1:
        return f"This node stands for {operator}, and does not give its result."
    return f"These {count} nodes stand for {operator}, and do not give its result."


def _values(captured: Captured, inside: TorchInside, feeds: Mapping[str, np.ndarray]) -> CapturedValues:
    reference = CapturedReference(captured)
    origins = {**inside.origins_of_outputs(captured), **inside.inside.origins}
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
