"""Finds the first node at which two ONNX models diverge, for a case in which their outputs differ."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opbridge.engines.base import Session
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import OpbridgeError
from opbridge.onnx_model.names import describe_node, describe_operator
from opbridge.proof.bisect.bisection import Bisection, bisect
from opbridge.proof.bisect.intermediates_engine import EngineModel
from opbridge.proof.bisect.onnx_values import OriginalValues
from opbridge.proof.compare.pairing import Paired, Pairing
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.compare.value_matching import ModelValues, equal_values, opened, renamed, same_names, sources_of
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.original_runs import EVALUATOR, Candidate, OriginalModel
from opbridge.proof.verify.trace import Divergence, TracedValue
from opbridge.proof.verify.verification import DEFAULT_SEED, Verification

__all__ = ["first_unmatched", "with_divergences"]

_FEWEST_BYTES = 1 << 25


@dataclasses.dataclass(frozen=True)
class _ReferenceEngine(Candidate):
    """The engine of the reference model, with the model's kernels."""

    libraries: tuple[Path, ...] = ()

    def load(self, file: Path) -> Session:
        """Load a part of the reference model."""
        return IsolatedSession(self.engine, file, libraries=self.libraries)


def with_divergences(
    verified: Verification,
    reference: ModelSide,
    model: ModelSide,
    runs: Paired,
    pairing: Pairing,
    tolerance: Tolerance | None,
) -> Verification:
    """Add to a verification the node at which the models diverge in the first failing case."""
    failed = [
        (case.name, feeds) for case, feeds in zip(verified.cases, runs.seen, strict=False) if case.verdict == "failed"
    ]
    if not failed or pairing.dtypes or not model.has_graph:
        return verified
    own, theirs = reference.graph(), renamed(model.graph(), pairing)
    found = []
    with opened(reference, own) as own_model, opened(model, theirs) as their_model:
        for name, feeds in failed[:1]:
            outputs = [item.output for item in verified.comparisons if item.case == name and not item.passed]
            search = _Search(reference, own, own_model, theirs, their_model, sources_of(model, theirs), tolerance)
            found.append(search.divergence(name, feeds, outputs, runs.run))
    return dataclasses.replace(verified, divergences=tuple(found))


@dataclasses.dataclass
class _Search:
    """Searches two models for the first divergence."""

    side: ModelSide
    own: ir.Model
    own_model: EngineModel
    theirs: ir.Model
    their_model: EngineModel
    sources: Mapping[str, str]
    tolerance: Tolerance | None

    def divergence(
        self,
        case: str,
        feeds: Mapping[str, np.ndarray],
        failing: Sequence[str],
        run: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    ) -> Divergence:
        """The divergence of the second model in one case."""
        pairs = same_names(self.own, self.theirs)
        by_number: dict[str, str] = {}
        outputs = {str(value.name) for value in self.own.graph.outputs}
        if len(pairs.keys() - outputs) * 2 < min(len(self.own_model.values), len(self.their_model.values)):
            with contextlib.suppress(OpbridgeError):
                own = self.own_model.run(list(self.own_model.values), feeds)
                by_number = equal_values(own, self.their_model, feeds)
        pairs = {**by_number, **pairs, **{name: name for name in outputs if name in self.their_model.values}}
        most_bytes = max(_FEWEST_BYTES, self.their_model.weight_bytes // 4)
        side = self.side
        own_engine = _ReferenceEngine(side.engine.name, side.label, libraries=side.libraries)
        original = OriginalModel(self.own, own_engine, Candidate(EVALUATOR, EVALUATOR))
        with OriginalValues(original, feeds, seed=DEFAULT_SEED, most_bytes=most_bytes) as values:
            found = bisect(
                Bisection(
                    case,
                    self.their_model,
                    ModelValues(values, pairs, self._lines()),
                    feeds,
                    run(feeds),
                    [name for name in failing if name in self.their_model.values],
                    lambda: run(feeds),
                    most_bytes,
                    self.tolerance,
                )
            )
        return first_unmatched(found, self.their_model, pairs, self.sources) if by_number else found

    def _lines(self) -> dict[str, str]:
        return {
            str(value.name): self.sources.get(str(node.name), "")
            for node in self.theirs.graph
            for value in node.outputs
        }


def first_unmatched(
    found: Divergence, model: EngineModel, pairs: Mapping[str, str], sources: Mapping[str, str]
) -> Divergence:
    """The divergence with its first node, for values that were matched by their numbers.

    A value with different numbers is not matched, so the first node after the last matched value diverges first.
    """
    if found.verdict != "diverges" or found.first is None:
        return found
    nodes, _ = model.segment(found.first.value, pairs.keys())
    if len(nodes) < 2:
        return found
    node = nodes[0]
    first = TracedValue(
        value=str(node.outputs[0].name),
        node=describe_node(node),
        operator=describe_operator(node.domain, node.op_type),
        depth=model.depth_of(str(node.outputs[0].name)),
        source=sources.get(str(node.name), ""),
        status=found.first.status,
    )
    between = tuple(describe_node(other) for other in nodes[1:])
    detail = f"its numbers, and those of all nodes up to {found.first.value}, are nowhere in the other model"
    return dataclasses.replace(found, first=first, between=between, detail=detail)
