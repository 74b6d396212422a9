"""Discrete decisions that an engine may make differently: only near ties.

An argmax, a comparison or a rounding of a computed number may fall to the other side when the number moves by a
rounding error, and everything after it is then another, equally right, result. An engine shows its decisions only if
they are outputs; others are found by replaying both reference runs with near ties decided the other way.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.node import map_aggregate

from opbridge.proof.verify.captured_graph import Decision
from opbridge.proof.verify.compare import ERROR_RATIO, floor_units
from opbridge.proof.verify.inputs import to_numpy
from opbridge.proof.verify.wide import merge_decisions, narrow_like, tensors, widen

__all__ = ["VARIANTS", "Choice", "Deciding", "Exactness", "plans", "visible_choice"]

VARIANTS = 4
"""Ways in which the near ties of one node are decided differently: for a selection (argmax, sort, topk) the selected
numbers at even or odd places pushed up or down by the slack; for any other all numbers up, all down, and two random
mixtures."""

_SELECTIONS = frozenset(
    {"argmax", "argmin", "argsort", "cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian"}
    | {"sort", "topk", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"}
    | {"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"}
)
_PERMUTATIONS = frozenset({"argsort", "sort", "topk"})
_SAME_ORDER = frozenset(
    {"alias", "clone", "contiguous", "detach", "flatten", "reshape", "squeeze", "unsqueeze", "view", "_to_copy", "to"}
)
_MOST_SAMPLES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Choice:
    """A decision that the engine shows, because it is an output.

    Attributes:
        key: The deciding node.
        leaf: The position of the node's result that shows the decision.
        value: The engine's decision.
    """

    key: str
    leaf: int
    value: torch.Tensor


def visible_choice(output: Any, value: np.ndarray) -> Choice | None:
    """The decision that an integer or boolean output is, if it is one, seen through views and integer casts.

    Args:
        output: The output's node.
        value: The engine's result.
    """
    node: Any = output
    leaf = 0
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        name = _name(node.target)
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


def _name(target: Any) -> str:
    return target.name().split("::")[-1].split(".")[0] if isinstance(target, torch._ops.OpOverload) else ""


@dataclasses.dataclass
class Exactness:
    """What several runs show of one tensor: a difference of two numbers may cancel by luck in any one of them.

    Attributes:
        level: PyTorch's typical error: the median of the errors that are not zero.
        exact: The elements without an error in any run.
    """

    level: float
    exact: torch.Tensor

    def add(self, own: torch.Tensor, wide: torch.Tensor) -> None:
        """Take one more run into account."""
        self.level = max(self.level, _sampled_median((own.double() - wide).abs()))
        exact = _exact(own, wide)
        self.exact = self.exact & exact if self.exact.shape == exact.shape else exact


def _exact(own: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    # A model in float64 has no wider reference, so nothing shows which of its numbers are exact.
    return (own.double() == wide) & torch.tensor(own.dtype is not torch.float64)


def _sampled_median(values: torch.Tensor) -> float:
    sample = values.reshape(-1)[:: max(1, values.numel() // _MOST_SAMPLES)]
    sample = sample[(sample > 0) & sample.isfinite()]
    return float(sample.median()) if sample.numel() else 0.0


def _slack(own: torch.Tensor, wide: torch.Tensor, seen: Exactness) -> torch.Tensor:
    """How far an engine's number may be from the float64 one here, by the error that PyTorch's own has.

    Numbers that are exact (an input, a ReLU's zeros) have none: no engine computes them otherwise.

    Args:
        own: The numbers in the model's dtype.
        wide: The same numbers in float64.
        seen: The errors of these numbers in all runs so far.
    """
    error = (own.double() - wide).abs()
    info = torch.finfo(own.dtype)
    unit = info.eps * wide.abs().clamp(min=max(_sampled_median(wide.abs()), info.tiny))
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
        choices: The engine's own decisions; a node's are taken if each is right or a near tie.
        search: Whether to find the nodes with near ties too.
        seen: The errors of every argument of every deciding node in the runs so far; updated in each run.

    Attributes:
        near_ties: Nodes with near ties, with the variants that change something.
        refused: Why an engine's decision is wrong, by node.
    """

    def __init__(
        self,
        variants: Mapping[str, int] | None = None,
        choices: Sequence[Choice] = (),
        search: bool = False,
        seen: dict[tuple[str, int], Exactness] | None = None,
    ) -> None:
        self.variants = dict(variants or {})
        self.choices: dict[str, list[Choice]] = {}
        for choice in choices:
            self.choices.setdefault(choice.key, []).append(choice)
        self.search = search
        self.seen = {} if seen is None else seen
        self.near_ties: dict[str, list[int]] = {}
        self.refused: dict[str, str] = {}

    def decide(self, decision: Decision) -> tuple[Any, Any]:
        """See :class:`~opbridge.proof.verify.captured_graph.Observer`."""
        own, wide = decision.own, decision.wide
        if decision.target._schema.is_mutable:
            return own, wide
        slacks = _slacks(decision, self.seen)
        if not any(bool(slack.any()) for slack in slacks.values()) and decision.key not in self.choices:
            return own, wide
        if self.search:
            changed = [v for v in range(VARIANTS) if _differs(_variant(decision, slacks, v)[1], wide)]
            if changed:
                self.near_ties[decision.key] = changed
        for choice in self.choices.get(decision.key, []):
            own, wide = self._chosen(decision, slacks, choice, own, wide)
        if decision.key in self.variants:
            return _variant(decision, slacks, self.variants[decision.key])
        return own, wide

    def _chosen(
        self, decision: Decision, slacks: dict[int, torch.Tensor], choice: Choice, own: Any, wide: Any
    ) -> tuple[Any, Any]:
        leaves = tensors(wide)
        if choice.leaf >= len(leaves) or leaves[choice.leaf].numel() != choice.value.numel():
            return own, wide
        current = leaves[choice.leaf]
        value = choice.value.reshape(current.shape).to(current.dtype)
        reason = _objection(decision, slacks, current, value)
        if reason:
            self.refused[decision.key] = reason
            return own, wide
        return _with_leaf(own, choice.leaf, value), _with_leaf(wide, choice.leaf, value)


def _slacks(decision: Decision, seen: dict[tuple[str, int], Exactness]) -> dict[int, torch.Tensor]:
    """The slack of every floating-point tensor among the arguments, by its place among all tensors."""
    owns = tensors((decision.own_args, decision.own_kwargs))
    wides = tensors((decision.wide_args, decision.wide_kwargs))
    slacks = {}
    for place, (own, wide) in enumerate(zip(owns, wides, strict=True)):
        if own.dtype.is_floating_point:
            key = (decision.key, place)
            seen.setdefault(key, Exactness(0.0, _exact(own, wide))).add(own, wide)
            slacks[place] = _slack(own, wide, seen[key])
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


def _perturbed(decision: Decision, moves: Mapping[int, torch.Tensor]) -> Any:
    """The float64 result with the tensors among the arguments moved."""
    place = -1

    def move(value: Any) -> Any:
        nonlocal place
        if not isinstance(value, torch.Tensor):
            return value
        place += 1
        return value + moves[place] if place in moves else value

    args, kwargs = map_aggregate((decision.wide_args, decision.wide_kwargs), move)
    try:
        return decision.target(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        args, kwargs = narrow_like((args, kwargs), (decision.own_args, decision.own_kwargs))
        return map_aggregate(decision.target(*args, **kwargs), widen)


def _variant(decision: Decision, slacks: Mapping[int, torch.Tensor], variant: int) -> tuple[Any, Any]:
    """Both results with the near ties decided differently."""
    if _name(decision.target) in _SELECTIONS and 0 in slacks:
        moves = {0: _push(decision, slacks[0], variant)}
    else:
        moves = _sweep(decision, slacks, variant)
    moved = _perturbed(decision, moves)
    merged = merge_decisions(decision.target, moved, decision.wide, decision.wide_args, decision.wide_kwargs)
    if not tensors(merged):
        return merged, merged
    own: list[torch.Tensor] = []
    for mine, other in zip(tensors(decision.own), tensors(merged), strict=False):
        own.append(mine if mine.shape == other.shape and not _moved(mine, other) else other.to(mine.dtype))
    remaining = iter(own)
    return map_aggregate(merged, lambda v: next(remaining) if isinstance(v, torch.Tensor) else v), merged


def _moved(one: torch.Tensor, other: torch.Tensor) -> bool:
    return not one.dtype.is_floating_point or _jumped(one.double(), other)


def _sweep(decision: Decision, slacks: Mapping[int, torch.Tensor], variant: int) -> dict[int, torch.Tensor]:
    """Moves of all numbers: the first argument's one way and the others' the other way, or at random."""
    moves = {}
    for place, slack in slacks.items():
        if variant < 2:
            moves[place] = slack * (1 if (variant == 0) == (place == 0) else -1)
        else:
            generator = torch.Generator().manual_seed(zlib.crc32(decision.key.encode()) + 31 * variant + place)
            signs = torch.randint(0, 2, slack.shape, generator=generator, dtype=torch.float64) * 2 - 1
            moves[place] = slack * signs
    return moves


def _selected(decision: Decision) -> tuple[torch.Tensor, int, int]:
    """The indices that a selection gave, the axis that they count along, and how many trailing axes that one merges.

    A selection over the whole tensor counts along the flattened one: axis -1 of everything merged.
    """
    values = tensors(decision.wide)
    indices = next(v for v in reversed(values) if not v.dtype.is_floating_point)
    source = tensors(decision.wide_args)[0]
    name = _name(decision.target)
    if "pool" in name:
        return indices, -1, int(next(character for character in name if character.isdigit()))
    arguments = [argument.name for argument in decision.target._schema.arguments]
    given = {**dict(zip(arguments, decision.wide_args, strict=False)), **decision.wide_kwargs}
    defaults = {argument.name: argument.default_value for argument in decision.target._schema.arguments}
    axis = given.get("dim", defaults.get("dim"))
    if axis is None:
        return indices, -1, max(source.ndim, 1)
    return indices, int(axis), 1


def _aligned(decision: Decision, tensor: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``tensor`` (of the source's shape) and ``indices`` with the counted axis last, both of the same rank."""
    _, axis, merged = _selected(decision)
    tensor = tensor.reshape(1) if tensor.ndim == 0 else tensor
    if merged > 1:
        lead = tensor.ndim - merged
        return tensor.flatten(lead), indices.reshape(*tensor.shape[:lead], -1)
    axis %= tensor.ndim
    if indices.ndim < tensor.ndim:
        indices = indices.unsqueeze(axis)
    return tensor.movedim(axis, -1), indices.movedim(axis, -1)


def _push(decision: Decision, slack: torch.Tensor, variant: int) -> torch.Tensor:
    """Moves of the selected numbers by twice the slack: across every number that is a near tie with them."""
    indices, _, _ = _selected(decision)
    moves = torch.zeros_like(slack)
    rows, places = _aligned(decision, moves, indices)
    amount, _ = _aligned(decision, slack, indices)
    if places.numel() == 0:
        return moves
    every_other = places[..., variant // 2 :: 2]
    pushed = rows.scatter(-1, every_other, 2.0) * amount * (1 if variant % 2 else -1)
    _, axis, merged = _selected(decision)
    return pushed.reshape(slack.shape) if merged > 1 or slack.ndim == 0 else pushed.movedim(-1, axis)


def _objection(
    decision: Decision, slacks: Mapping[int, torch.Tensor], current: torch.Tensor, value: torch.Tensor
) -> str:
    """Why the engine's decision is wrong; empty if it is right or a near tie."""
    if torch.equal(current, value):
        return ""
    if _name(decision.target) in _SELECTIONS:
        return _selection_objection(decision, slacks.get(0), current, value)
    candidates = [current.double()]
    for variant in range(VARIANTS):
        leaves = tensors(_variant(decision, slacks, variant)[1])
        candidates += [leaf.double() for leaf in leaves if leaf.shape == current.shape]
    low, high = torch.stack(candidates).amin(0), torch.stack(candidates).amax(0)
    wrong = (value.double() < low) | (value.double() > high)
    return f"{int(wrong.sum())} of {wrong.numel()} decisions are wrong and no near ties" if bool(wrong.any()) else ""


def _selection_objection(
    decision: Decision, slack: torch.Tensor | None, current: torch.Tensor, value: torch.Tensor
) -> str:
    source = tensors(decision.wide_args)[0]
    slack = torch.zeros_like(source) if slack is None else slack
    rows, chosen = _aligned(decision, source, value)
    _, expected = _aligned(decision, source, current)
    allowed, _ = _aligned(decision, slack, value)
    if bool(((chosen < 0) | (chosen >= rows.shape[-1])).any()):
        return "an index is out of range"
    name = _name(decision.target)
    if name in _PERMUTATIONS and bool((chosen.sort(-1).values.diff(dim=-1) == 0).any()):
        return "an index appears twice"
    positions = torch.arange(chosen.shape[-1])
    if name in ("cummax", "cummin") and bool((chosen > positions).any()):
        return "a running index is ahead of its position"
    one, other = rows.gather(-1, chosen), rows.gather(-1, expected)
    room = allowed.gather(-1, chosen) + allowed.gather(-1, expected)
    gap = torch.where((one == other) | (one.isnan() & other.isnan()), 0.0, (one - other).abs())
    wrong = ~(gap <= room)
    if not bool(wrong.any()):
        return ""
    return (
        f"{int(wrong.sum())} of {wrong.numel()} indices are wrong: the numbers they select differ by up to "
        f"{float(gap[wrong].max()):.3g}, and {float(room[wrong].min()):.3g} would be a near tie"
    )


def plans(near_ties: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """What to try: all near ties differently at once, each variant in turn, then one node at a time."""
    for variant in range(VARIANTS):
        together = {key: variant for key, variants in near_ties.items() if variant in variants}
        if together:
            yield together
    if len(near_ties) > 1:
        for key, variants in near_ties.items():
            for variant in variants:
                yield {key: variant}
