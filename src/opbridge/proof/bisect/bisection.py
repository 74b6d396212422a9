"""Finds the first mismatching node: the first whose result is wrong although its inputs are right.

If memory allows, all segments between values that the reference has are run at once. The inputs of each segment are the
reference's own values, so that an earlier harmless rounding can neither hide a mismatch nor cause one. Otherwise the
whole model is searched, with as many values at a time as fit into memory, and the segment that is found is then run
alone on the reference's values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from opbridge.errors import EngineError, OpbridgeError, first_line
from opbridge.onnx_model.names import describe_operator
from opbridge.proof.bisect.intermediates import Intermediate, ReferenceValues, judged, portions
from opbridge.proof.bisect.intermediates_engine import EngineModel
from opbridge.proof.verify.compare import Verdict, is_floating
from opbridge.proof.verify.options import Tolerance
from opbridge.proof.verify.trace import Divergence, Status, TracedValue

__all__ = ["FAILURES", "FEWEST_BYTES", "MOST_BISECTED", "Bisection", "bisect", "comparable_sizes", "traced_value"]

Judge = Callable[[np.ndarray, Intermediate], tuple[Status, Verdict]]
FEWEST_BYTES = 1 << 25
"""The smallest number of bytes of intermediate values to hold at a time, even if the model's weights are smaller."""

MOST_BISECTED = 3
"""The largest number of cases of a verification that are bisected; a fault usually shows at every size."""

FAILURES = (OpbridgeError, OSError, ValueError, RuntimeError)
"""The exceptions of an engine, of PyTorch or of a full disk; the verification then continues without a bisection."""

_REPEATS = 3
_MOST_RESTARTS = 8


@dataclasses.dataclass
class Bisection:
    """The input of a search for the first mismatching node on one case.

    Attributes:
        case: The case's name.
        model: The engine's model.
        reference: The reference's values.
        feeds: The case's inputs.
        results: The engine's results.
        failing: The outputs that fail.
        again: Runs the engine once more, in the session that computed ``results``.
        most_bytes: The number of bytes of intermediate values to hold at a time.
        tolerance: The tolerance that replaces the tolerance.
        judge: Decides whether a value passes, from the engine's value and the reference's; it replaces the budget.
    """

    case: str
    model: EngineModel
    reference: ReferenceValues
    feeds: Mapping[str, np.ndarray]
    results: Mapping[str, np.ndarray]
    failing: Sequence[str]
    again: Callable[[], Mapping[str, np.ndarray]]
    most_bytes: int
    tolerance: Tolerance | None = None
    judge: Judge | None = None


def bisect(given: Bisection) -> Divergence:
    """Find the first mismatching node.

    Returns:
        The result; see :class:`~opbridge.proof.verify.trace.Divergence`. If the engine fails on a part of its
        model, the status is "not found", with the engine's message.
    """
    search = _Search(given)
    try:
        found = search.find()
    except FAILURES as error:
        detail = f"a part of the model fails: {first_line(error)}"
        found = Divergence(given.case, "not found", search.output(), detail=detail)
    return dataclasses.replace(found, runs=given.model.runs + search.repeats)


class _Search:
    """The state of one bisection."""

    def __init__(self, given: Bisection) -> None:
        self.given = given
        self.model = given.model
        self.reference = given.reference
        self.repeats = 0
        self.failing = [name for name in given.failing if name in self.model.values]
        before = self.model.ancestors(self.failing) | set(self.failing)
        # The names are in the order of the graph.
        self.known = [name for name in self.model.values if name in before and name in self.reference.names]
        self.nbytes: dict[str, int] = {}
        self.refused = ""

    def find(self) -> Divergence:
        """The result, without the number of runs."""
        changed = self._repeated()
        if changed:
            return self._not_deterministic(changed)
        if self.known:
            self._measure()
        if not self.known:
            return self._nothing("no value between the inputs and the outputs has a counterpart in the reference")
        portions = list(self._portions(self.known, both=True))
        # A search takes about log2 of the number of values in runs, or fewer if many values fit at a time.
        searches = len(portions) > 2 + math.log2(len(self.known) or 1)
        try:
            found = self._by_halves() if searches else self._in_segments(portions)
        except EngineError as error:
            # Some engines refuse a model whose inputs are intermediate values. The whole model can still be observed.
            found, self.refused = None, error.message
        return found or self._when_observed()

    def output(self) -> TracedValue | None:
        """The first output that fails."""
        name = next(iter(self.failing), None)
        return None if name is None else self._traced(name, "differs", Verdict(False, 0.0, 0.0, 0.0, 0.0))

    def _repeated(self) -> list[str]:
        """The outputs that differ from run to run on equal inputs."""
        for _ in range(_REPEATS):
            self.repeats += 1
            again = self.given.again()
            changed = [name for name in self.failing if _changes(self.given.results[name], again[name])]
            if changed:
                return changed
        return []

    def _measure(self) -> None:
        """Determine the sizes of the reference's values, and drop those whose type shows that they are other values."""
        self.nbytes = comparable_sizes(self.model, self.reference, self.known)
        self.known = [name for name in self.known if name in self.nbytes]

    def _portions(self, names: Sequence[str], *, both: bool) -> Iterator[list[str]]:
        """Names in order, divided so that each part fits in memory; with ``both``, values that they read count too."""
        reads = {name: self.model.segment(name, self.known)[1] if both else set() for name in names}
        # A value that several of them read counts several times: a portion may be too small but never too large.
        sizes = {name: sum(self.nbytes.get(item, 0) for item in (name, *reads[name])) for name in names}
        return portions(names, sizes, self.given.most_bytes)

    def _values(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """The reference's own values, in the element types of the engine's model."""
        found = self.reference.own(names)
        for name, array in found.items():
            stated = self.model.element_type(name)
            found[name] = array if stated is None else array.astype(stated, copy=False)
        return found

    def _in_segments(self, portions: Sequence[Sequence[str]]) -> Divergence | None:
        """Run the segments, each with the reference's values as inputs; the first that diverges."""
        for portion in portions:
            ends = set().union(*(self.model.segment(name, self.known)[1] for name in portion))
            results = self.model.run(portion, self.given.feeds, self._values(ends))
            mismatches = self._mismatches(results)
            if mismatches:
                first = min(mismatches, key=self.model.depth_of)
                return self._divergence_at(first, *mismatches[first])
        return None

    def _mismatches(self, results: Mapping[str, np.ndarray]) -> dict[str, tuple[Status, Verdict]]:
        """The results that do not match the reference's values."""
        found: dict[str, tuple[Status, Verdict]] = {}

        def see(name: str, value: Intermediate) -> None:
            if value.random:
                return
            if self.given.judge is not None:
                status, verdict = self.given.judge(results[name], value)
            else:
                status, verdict = judged(
                    results[name],
                    value,
                    longest_sum=self.reference.longest_sum,
                    tolerance=self.given.tolerance,
                    nearby=lambda: self.reference.nearby(name),
                    is_near_tie=lambda value: self.reference.is_near_tie(name, value),
                )
            if not verdict.passed:
                found[name] = status, verdict

        self.reference.visit(results.keys(), see)
        return found

    def _by_halves(self) -> Divergence | None:
        """Search the whole model for the first divergence, a few values at a time."""
        given: dict[str, np.ndarray] = {}
        for _ in range(_MOST_RESTARTS):
            suspect = self._suspected(self.failing, self.known, given)
            while suspect is not None:
                ends = self.model.segment(suspect, self.known)[1]
                alone = self._mismatches(self.model.run([suspect], self.given.feeds, self._values(ends)))
                if suspect in alone:
                    return self._divergence_at(suspect, *alone[suspect])
                # The value is right if its inputs are right, so an input is wrong, or the mismatch was only rounding.
                wrong = self._mismatches(self.model.run(sorted(ends), self.given.feeds, given)) if ends else {}
                if not wrong:
                    break
                first = min(wrong, key=self.model.depth_of)
                suspect = self._suspected([first], self.known, given) or first
            if suspect is None:
                return None
            given |= self._values([suspect])
        return None

    def _suspected(self, wrong: Sequence[str], known: Sequence[str], given: Mapping[str, np.ndarray]) -> str | None:
        """The first mismatching value before ``wrong``; values from which a right value is computed count as right."""
        suspect = next((name for name in wrong if name in known), None)
        if given and suspect is not None and not self._mismatches(self.model.run([suspect], self.given.feeds, given)):
            return None
        before = self.model.ancestors(wrong)
        remaining = [name for name in known if name in before and name not in given]
        while remaining:
            marked = self._spread(remaining)
            mismatches = self._mismatches(self.model.run(marked, self.given.feeds, given))
            first = min(mismatches, key=self.model.depth_of) if mismatches else None
            limit = self.model.depth if first is None else self.model.depth_of(first)
            correct = [name for name in marked if name not in mismatches and self.model.depth_of(name) <= limit]
            cleared = self.model.ancestors(correct) | set(correct)
            if first is not None:
                suspect = first
                ancestors = self.model.ancestors([first])
                remaining = [name for name in remaining if name in ancestors]
            remaining = [name for name in remaining if name not in cleared and name != first]
        return suspect

    def _spread(self, names: Sequence[str]) -> list[str]:
        """As many of the names as memory allows, evenly spaced; at least the middle one."""
        count = len(names)
        while count > 1:
            chosen = [names[(2 * index + 1) * len(names) // (2 * count)] for index in range(count)]
            if sum(self.nbytes[name] for name in chosen) <= self.given.most_bytes:
                return list(dict.fromkeys(chosen))
            count = count * 3 // 4
        return [names[len(names) // 2]]

    def _when_observed(self) -> Divergence:
        """The result if every segment is right when it runs alone."""
        marked = [*self._spread(self.known), *self.failing]
        results = self.model.run(list(dict.fromkeys(marked)), self.given.feeds)
        mismatches = self._mismatches({name: results[name] for name in marked if name in self.nbytes})
        wrong = [name for name in self.failing if name in mismatches]
        if not wrong and any(name in self.nbytes for name in self.failing):
            return Divergence(
                self.given.case,
                "vanishes when observed",
                self.output(),
                detail="with intermediate values as outputs, the engine computes correct results, so an optimization "
                "of the engine over several nodes is at fault",
            )
        if mismatches:
            first = min(mismatches, key=self.model.depth_of)
            status, verdict = mismatches[first]
            detail = "every node is right if its inputs are right: the error accumulated over the preceding nodes"
            if self.refused:
                detail = f"{verdict.detail}; found in the whole model, because the engine refuses parts: {self.refused}"
            return self._divergence_at(first, status, dataclasses.replace(verdict, detail=detail))
        return self._nothing("every value that has a counterpart in the reference is right")

    def _not_deterministic(self, changed: Sequence[str]) -> Divergence:
        """The first value that differs between two runs on equal inputs."""
        first, changes = changed[0], "its result differs between runs on equal inputs"
        candidates = self.known or [name for name in self.model.values if name in self.model.ancestors(changed)]
        if not self.nbytes and self.known:
            self._measure()
        for portion in self._portions(candidates, both=False):
            runs = self.model.run_twice(portion, self.given.feeds, times=1 + _REPEATS)
            moving = [name for name in portion if any(_changes(runs[0][name], run[name]) for run in runs[1:])]
            if moving:
                first = min(moving, key=self.model.depth_of)
                break
        found = self._divergence_at(first, "differs", Verdict(False, np.inf, 0.0, 0.0, np.inf, changes))
        return dataclasses.replace(found, verdict="not deterministic", detail=changes)

    def _divergence_at(self, name: str, status: Status, verdict: Verdict) -> Divergence:
        first = self._traced(name, status, verdict)
        nodes, _ = self.model.segment(name, self.known)
        between = tuple(str(node.name) for node in nodes if node.name != first.node)
        return Divergence(self.given.case, "diverges", first, between, detail=verdict.detail)

    def _nothing(self, why: str) -> Divergence:
        between = tuple(str(node.name) for node in self.model.segment(self.failing[0], ())[0]) if self.failing else ()
        return Divergence(self.given.case, "not found", self.output(), between, detail=why)

    def _traced(self, name: str, status: Status, verdict: Verdict) -> TracedValue:
        return traced_value(self.model, self.reference, name, status, verdict)


def comparable_sizes(model: EngineModel, reference: ReferenceValues, names: Collection[str]) -> dict[str, int]:
    """The bytes of each value whose type is the same in the engine's model, or floating-point in both."""
    found = {}
    for name, size in reference.sizes(names).items():
        stated = model.element_type(name)
        if stated is None or stated == size.dtype or (is_floating(stated) and is_floating(size.dtype)):
            found[name] = size.nbytes
    return found


def traced_value(
    model: EngineModel, reference: ReferenceValues, name: str, status: Status, verdict: Verdict
) -> TracedValue:
    """A value with the node that computes it and its source."""
    node = model.node(name)
    described = reference.describe(name)
    return TracedValue(
        value=name,
        node=str(node.name or ""),
        operator=describe_operator(node.domain, node.op_type),
        depth=model.depth_of(name),
        target=described.target,
        fx_node=described.fx_node,
        source=described.source,
        status=status,
        engine_error=verdict.engine_error,
        torch_error=verdict.torch_error,
        budget=verdict.budget,
        ratio=verdict.ratio,
        detail=verdict.detail,
    )


def _changes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the results of two runs differ by more than the order of a sum explains."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if one.tobytes() == other.tobytes():
        return False
    status, _ = judged(other, Intermediate(one, None))
    return status == "differs"
