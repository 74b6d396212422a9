"""Selections among numbers: argmax, sort, topk and their kin, by the indices that they give.

An engine may select another number than PyTorch if the two differ by less than rounding explains, and no other.
"""

from __future__ import annotations

from typing import Any

import torch

from opbridge.proof.verify.captured_run import Decision
from opbridge.proof.verify.float64_call import base_name, tensors

__all__ = ["SELECTIONS", "pushed", "reselected", "selection_objection"]

SELECTIONS = frozenset(
    {"argmax", "argmin", "argsort", "cummax", "cummin", "kthvalue", "max", "median", "min", "mode", "nanmedian"}
    | {"sort", "topk", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"}
    | {"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"}
)
_PERMUTATIONS = frozenset({"argsort", "sort", "topk"})


def _selected(decision: Decision) -> tuple[torch.Tensor, int, int]:
    """The indices that a selection returned, their axis, and the number of trailing axes that are merged into it.

    A selection over all elements returns an index of the flattened tensor: axis -1 of all axes merged.
    """
    values = tensors(decision.float64)
    indices = next(v for v in reversed(values) if not v.dtype.is_floating_point)
    source = tensors(decision.float64_args)[0]
    name = base_name(decision.target)
    if "pool" in name:
        return indices, -1, int(next(character for character in name if character.isdigit()))
    arguments = [argument.name for argument in decision.target._schema.arguments]
    given = {**dict(zip(arguments, decision.float64_args, strict=False)), **decision.float64_kwargs}
    defaults = {argument.name: argument.default_value for argument in decision.target._schema.arguments}
    axis = given.get("dim", defaults.get("dim"))
    if axis is None:
        return indices, -1, max(source.ndim, 1)
    return indices, int(axis), 1


def _aligned(decision: Decision, tensor: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``tensor`` (of the source's shape) and ``indices`` with the axis of the indices last, both of the same rank."""
    _, axis, merged = _selected(decision)
    tensor = tensor.reshape(1) if tensor.ndim == 0 else tensor
    if merged > 1:
        lead = tensor.ndim - merged
        return tensor.flatten(lead), indices.reshape(*tensor.shape[:lead], -1)
    axis %= tensor.ndim
    if indices.ndim < tensor.ndim:
        indices = indices.unsqueeze(axis)
    return tensor.movedim(axis, -1), indices.movedim(axis, -1)


def pushed(decision: Decision, slack: torch.Tensor, variant: int) -> torch.Tensor:
    """Offsets of the selected numbers by twice the slack: beyond every number that is a near tie with them."""
    indices, _, _ = _selected(decision)
    offsets = torch.zeros_like(slack)
    rows, places = _aligned(decision, offsets, indices)
    amount, _ = _aligned(decision, slack, indices)
    if places.numel() == 0:
        return offsets
    every_other = places[..., variant // 2 :: 2]
    pushed = rows.scatter(-1, every_other, 2.0) * amount * (1 if variant % 2 else -1)
    _, axis, merged = _selected(decision)
    return pushed.reshape(slack.shape) if merged > 1 or slack.ndim == 0 else pushed.movedim(-1, axis)


def selection_objection(
    decision: Decision, slack: torch.Tensor | None, current: torch.Tensor, value: torch.Tensor
) -> str:
    """Why the indices of a selection are wrong; empty if they are right or near ties.

    Args:
        decision: The selection.
        slack: How far the engine's numbers may be from the float64 ones; None if they are exact.
        current: The indices of the reference.
        value: The engine's indices.
    """
    source = tensors(decision.float64_args)[0]
    slack = torch.zeros_like(source) if slack is None else slack
    rows, chosen = _aligned(decision, source, value)
    _, expected = _aligned(decision, source, current)
    allowed, _ = _aligned(decision, slack, value)
    if bool(((chosen < 0) | (chosen >= rows.shape[-1])).any()):
        return "an index is out of range"
    name = base_name(decision.target)
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
        f"{int(wrong.sum())} of {wrong.numel()} indices are wrong: the selected numbers differ by up to "
        f"{float(gap[wrong].max()):.3g}; a near tie differs by at most {float(room[wrong].min()):.3g}"
    )


def reselected(decision: Decision, indices: torch.Tensor) -> tuple[Any, Any]:
    """Both results of a selection with other indices: the numbers at these, and the indices."""
    found: list[Any] = []
    for result, arguments in ((decision.own, decision.own_args), (decision.float64, decision.float64_args)):
        if isinstance(result, torch.Tensor):
            found.append(indices)
            continue
        source = tensors(arguments)[0]
        rows, chosen = _aligned(decision, source, indices)
        values = rows.gather(-1, chosen)
        _, axis, merged = _selected(decision)
        if merged == 1 and source.ndim:
            values = values.movedim(-1, axis)
        found.append((values.reshape(result[0].shape), indices))
    return found[0], found[1]
