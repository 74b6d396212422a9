"""Discrete decisions that an engine may make differently, because they are near ties.

An argmax, a comparison or a rounding may give another result if its input changes by a rounding error. Everything
computed from it is then different, and equally correct. An engine's decisions are known only if they are outputs; for
all others, both reference runs are repeated with near ties decided the other way.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.node import map_aggregate

from opbridge.proof.verify.captured_run import Decision
from opbridge.proof.verify.compare import ERROR_RATIO, floor_units
from opbridge.proof.verify.float64_call import base_name, merge_decisions, narrow_like, tensors, widen
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.selections import SELECTIONS, pushed, reselected, selection_objection
from opbridge.proof.verify.suppression import suppression_objection

__all__ = ["VARIANTS", "Choice", "Deciding", "Exactness", "plans", "visible_choice"]

VARIANTS = 4
"""The number of ways in which the near ties of one node are decided differently. For a selection (argmax, sort, topk),
the selected numbers at even or odd places are moved up or down by the slack; for any other node, all numbers are moved
up or down, or at random in two ways."""

_SAME_ORDER = frozenset(
    {"alias", "clone", "contiguous", "detach", "flatten", "reshape", "squeeze", "unsqueeze", "view", "_to_copy", "to"}
)
_CONTINUOUS_JUMPS = frozenset(
    {"frac", "fmod", "remainder", "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"}
)
"""Operators that jump and whose results are rounded too, so that an engine's are no decisions to compare."""
_OF_ROWS = frozenset({"argsort", "nms", "sort", "topk"})
_MOST_SAMPLES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Choice:
    """A decision of the engine that is known, because it is an output.

    Attributes:
        key: The deciding node.
        leaf: The position of the node's result that shows the decision.
        value: The engine's decision.
    """

    key: str
    leaf: int
    value: torch.Tensor


def visible_choice(output: Any, value: np.ndarray) -> Choice | None:
    """The decision that an integer or boolean output shows, followed through views and integer casts; None if none.

    Args:
        output: The output's node.
        value: The engine's result.
    """
    node: Any = output
    leaf = 0
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        name = base_name(node.target)
        if getattr(node.target, "__name__", "") == "getitem":
            leaf, node = _index(node.args[1]), node.args[0]
        elif name in _SAME_ORDER and not _is_floating(node.args[0]):
            node = node.args[0]
        else:
            return Choice(node.name, leaf, torch.from_numpy(np.array(value)))
    return None


def _index(argument: Any) -> int:
    return int(argument)


def _is_floating(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


@dataclasses.dataclass
class Exactness:
    """The errors of one tensor in several runs, because errors may cancel by chance in a single run.

    Attributes:
        level: PyTorch's typical error: the median of the errors that are not zero.
        exact: Whether each element had no error in any run.
    """

    level: float
    exact: torch.Tensor

    def add(self, own: torch.Tensor, float64: torch.Tensor, exactness_only: bool = False) -> None:
        """Add a run; with ``exactness_only``, its errors do not count."""
        if not exactness_only:
            self.level = max(self.level, _sampled_median((own.double() - float64).abs()))
        exact = _exact(own, float64)
        self.exact = self.exact & exact if self.exact.shape == exact.shape else exact


def _exact(own: torch.Tensor, float64: torch.Tensor) -> torch.Tensor:
    # A model in float64 has no more precise reference, so it is not known which of its numbers are exact.
    return (own.double() == float64) & torch.tensor(own.dtype is not torch.float64)


def _sampled_median(values: torch.Tensor) -> float:
    sample = values.reshape(-1)[:: max(1, values.numel() // _MOST_SAMPLES)]
    sample = sample[(sample > 0) & sample.isfinite()]
    return float(sample.median()) if sample.numel() else 0.0


def _slack(own: torch.Tensor, float64: torch.Tensor, seen: Exactness) -> torch.Tensor:
    """How far an engine's number may be from the float64 number, according to PyTorch's own error.

    Numbers that are exact (an input, a ReLU's zeros) have no slack, because every engine computes them exactly.

    Args:
        own: The numbers in the model's dtype.
        float64: The same numbers in float64.
        seen: The errors of these numbers in all runs so far.
    """
    error = (own.double() - float64).abs()
    info = torch.finfo(own.dtype)
    unit = info.eps * float64.abs().clamp(min=max(_sampled_median(float64.abs()), info.tiny))
    units = torch.where(error.isfinite(), error / unit, 0.0)
    sample = units.reshape(-1)[:: max(1, units.numel() // _MOST_SAMPLES)]
    usual = float(torch.quantile(sample, 0.99)) if sample.numel() else 0.0
    floor = floor_units(to_numpy(torch.empty(0, dtype=own.dtype)).dtype)
    slack = ERROR_RATIO * (units.clamp(min=usual) * unit).clamp(min=seen.level) + floor * unit
    return torch.where(seen.exact | ~slack.isfinite(), torch.zeros_like(slack), slack)


class Deciding:
    """An observer of the reference runs that decides near ties by the given variants.

    Args:
        variants: The variant of each node.
        choices: The engine's own decisions; those of a node are used if all of them are right or near ties.
        search: Whether to find the nodes with near ties too.
        seen: The errors of every argument of every deciding node in the runs so far; updated in each run.
        forced: Nodes whose choices are taken even if they are wrong.
        exactness_only: Whether this run only shows which numbers are exact.

    Attributes:
        near_ties: The nodes with near ties, with the variants that change their results.
        open: The positions of the discrete results of every node that rounding may reach.
        rows: The indices that a selection along an only axis gave, by node, and the number of its candidates.
        followed: The nodes at which the engine's decision was taken.
        refused: Why an engine's decision is wrong, by node.
    """

    def __init__(
        self,
        variants: Mapping[str, int] | None = None,
        choices: Sequence[Choice] = (),
        search: bool = False,
        seen: dict[tuple[str, int], Exactness] | None = None,
        forced: Collection[str] = (),
        exactness_only: bool = False,
    ) -> None:
        self.variants = dict(variants or {})
        self.choices: dict[str, list[Choice]] = {}
        for choice in choices:
            self.choices.setdefault(choice.key, []).append(choice)
        self.search = search
        self.seen = {} if seen is None else seen
        self.forced = forced
        self.exactness_only = exactness_only
        self.near_ties: dict[str, list[int]] = {}
        self.open: dict[str, list[int]] = {}
        self.rows: dict[str, tuple[Choice, int]] = {}
        self.followed: set[str] = set()
        self.refused: dict[str, str] = {}

    def decide(self, decision: Decision) -> tuple[Any, Any]:
        """See :class:`~opbridge.proof.verify.captured_graph.Observer`."""
        own, float64 = decision.own, decision.float64
        if decision.target._schema.is_mutable:
            return own, float64
        slacks = _slacks(decision, self.seen, self.exactness_only)
        if base_name(decision.target) in _OF_ROWS:
            self.open[decision.key] = _discrete(decision)  # exactly equal numbers are ties too
            self.rows |= _selected_rows(decision)
        if not any(bool(slack.any()) for slack in slacks.values()) and decision.key not in self.choices:
            return own, float64
        self.open[decision.key] = _discrete(decision)
        if self.search:
            changed = [v for v in range(VARIANTS) if _differs(_variant(decision, slacks, v)[1], float64)]
            if changed:
                self.near_ties[decision.key] = changed
        for choice in self.choices.get(decision.key, []):
            own, float64 = self._chosen(decision, slacks, choice, own, float64)
        if decision.key in self.variants:
            return _variant(decision, slacks, self.variants[decision.key])
        return own, float64

    def _chosen(
        self, decision: Decision, slacks: dict[int, torch.Tensor], choice: Choice, own: Any, float64: Any
    ) -> tuple[Any, Any]:
        leaves = tensors(float64)
        suppresses = base_name(decision.target) == "nms"  # an engine may keep more boxes, or fewer
        if choice.leaf >= len(leaves) or not (suppresses or leaves[choice.leaf].numel() == choice.value.numel()):
            return own, float64
        current = leaves[choice.leaf]
        value = choice.value.reshape(-1 if suppresses else current.shape).to(current.dtype)
        reason = "" if choice.key in self.forced else _objection(decision, slacks, current, value)
        if reason:
            self.refused[decision.key] = reason
            return own, float64
        self.followed.add(decision.key)
        if base_name(decision.target) in SELECTIONS:
            return reselected(decision, value)
        own_value = value.to(tensors(own)[choice.leaf].dtype)
        return _with_leaf(own, choice.leaf, own_value), _with_leaf(float64, choice.leaf, value)


def _discrete(decision: Decision) -> list[int]:
    """The positions of the results that are discrete: all but the numbers that a selection gives with its indices."""
    if base_name(decision.target).rstrip("_") in _CONTINUOUS_JUMPS:
        return []
    results = tensors(decision.own)
    found = [place for place, result in enumerate(results) if not result.dtype.is_floating_point]
    return found or list(range(len(results)))


def _selected_rows(decision: Decision) -> dict[str, tuple[Choice, int]]:
    """The indices of a selection along its only axis, and the number of candidates."""
    results = tensors(decision.own)
    scores = tensors((decision.own_args, decision.own_kwargs))[base_name(decision.target) == "nms"]
    return (
        {decision.key: (Choice(decision.key, len(results) - 1, results[-1]), scores.numel())}
        if scores.ndim == 1
        else {}
    )


def _slacks(
    decision: Decision, seen: dict[tuple[str, int], Exactness], exactness_only: bool
) -> dict[int, torch.Tensor]:
    """The slack of every floating-point tensor among the arguments, by its position among all tensors."""
    own_tensors = tensors((decision.own_args, decision.own_kwargs))
    float64_tensors = tensors((decision.float64_args, decision.float64_kwargs))
    slacks = {}
    for place, (own, float64) in enumerate(zip(own_tensors, float64_tensors, strict=True)):
        if own.dtype.is_floating_point:
            key = (decision.key, place)
            seen.setdefault(key, Exactness(0.0, _exact(own, float64))).add(own, float64, exactness_only)
            slacks[place] = _slack(own, float64, seen[key])
    return slacks


def _with_leaf(value: Any, leaf: int, replacement: torch.Tensor) -> Any:
    if isinstance(value, tuple | list):
        return tuple(replacement if i == leaf else item for i, item in enumerate(value))
    return replacement


def _differs(one: Any, other: Any) -> bool:
    pairs = zip(tensors(one), tensors(other), strict=False)
    return any(
        a.shape != b.shape or (not a.dtype.is_floating_point and not torch.equal(a, b)) or _jumped(a, b)
        for a, b in pairs
    )


def _jumped(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype.is_floating_point and bool(((one - other).abs() > 0.25).any())


def _perturbed(decision: Decision, offsets: Mapping[int, torch.Tensor]) -> Any:
    """The float64 result with offsets added to the tensors among the arguments."""
    place = -1

    def offset_by(value: Any) -> Any:
        nonlocal place
        if not isinstance(value, torch.Tensor):
            return value
        place += 1
        return value + offsets[place] if place in offsets else value

    args, kwargs = map_aggregate((decision.float64_args, decision.float64_kwargs), offset_by)
    try:
        return decision.target(*args, **kwargs)
    except Exception:  # The call in the model's dtype succeeded, so the operator does not accept float64.
        args, kwargs = narrow_like((args, kwargs), (decision.own_args, decision.own_kwargs))
        return map_aggregate(decision.target(*args, **kwargs), widen)


def _variant(decision: Decision, slacks: Mapping[int, torch.Tensor], variant: int) -> tuple[Any, Any]:
    """Both results with the near ties decided differently."""
    if base_name(decision.target) in SELECTIONS and 0 in slacks:
        offsets = {0: pushed(decision, slacks[0], variant)}
    else:
        offsets = _sweep(decision, slacks, variant)
    perturbed = _perturbed(decision, offsets)
    merged = merge_decisions(
        decision.target, perturbed, decision.float64, decision.float64_args, decision.float64_kwargs
    )
    if not tensors(merged):
        return merged, merged
    own: list[torch.Tensor] = []
    for own_tensor, other in zip(tensors(decision.own), tensors(merged), strict=False):
        own.append(
            own_tensor
            if own_tensor.shape == other.shape and not _changed(own_tensor, other)
            else other.to(own_tensor.dtype)
        )
    remaining = iter(own)
    return map_aggregate(merged, lambda v: next(remaining) if isinstance(v, torch.Tensor) else v), merged


def _changed(one: torch.Tensor, other: torch.Tensor) -> bool:
    return not one.dtype.is_floating_point or _jumped(one.double(), other)


def _sweep(decision: Decision, slacks: Mapping[int, torch.Tensor], variant: int) -> dict[int, torch.Tensor]:
    """Offsets of all numbers: those of the first argument and of the others in opposite directions, or at random."""
    offsets = {}
    for place, slack in slacks.items():
        if variant < 2:
            offsets[place] = slack * (1 if (variant == 0) == (place == 0) else -1)
        else:
            generator = torch.Generator().manual_seed(zlib.crc32(decision.key.encode()) + 31 * variant + place)
            signs = torch.randint(0, 2, slack.shape, generator=generator, dtype=torch.float64) * 2 - 1
            offsets[place] = slack * signs
    return offsets


def _objection(
    decision: Decision, slacks: Mapping[int, torch.Tensor], current: torch.Tensor, value: torch.Tensor
) -> str:
    """Why the engine's decision is wrong; empty if it is right or a near tie."""
    if torch.equal(current, value):
        return ""
    if base_name(decision.target) in SELECTIONS:
        return selection_objection(decision, slacks.get(0), current, value)
    if base_name(decision.target) == "nms":
        return suppression_objection(decision, slacks, value)
    candidates = [current.double()]
    for variant in range(VARIANTS):
        leaves = tensors(_variant(decision, slacks, variant)[1])
        candidates += [leaf.double() for leaf in leaves if leaf.shape == current.shape]
    low, high = torch.stack(candidates).amin(0), torch.stack(candidates).amax(0)
    wrong = (value.double() < low) | (value.double() > high)
    return f"{int(wrong.sum())} of {wrong.numel()} decisions are wrong, not near ties" if bool(wrong.any()) else ""


def plans(near_ties: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """The decisions to try: all near ties at once, one variant after the other, then one node at a time."""
    for variant in range(VARIANTS):
        together = {key: variant for key, variants in near_ties.items() if variant in variants}
        if together:
            yield together
    if len(near_ties) > 1:
        for key, variants in near_ties.items():
            for variant in variants:
                yield {key: variant}
