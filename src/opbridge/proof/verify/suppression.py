"""Non-maximum suppression: whether the boxes that an engine keeps are a right choice among near ties.

The algorithm keeps the box with the best score, drops all that overlap it by more than the threshold, and goes on with
the best of the others. A list of kept boxes is therefore right if the scores descend, no two of the boxes overlap too
much, and every other box overlaps one of them whose score is no lower. Here each of these may be missed by as much as
rounding explains.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from opbridge.proof.verify.captured_run import Decision
from opbridge.proof.verify.float64_call import tensors

__all__ = ["suppression_objection"]

_EPSILONS = 64
"""The rounding errors of an overlap itself, whose boxes may be exact numbers."""


def suppression_objection(decision: Decision, slacks: Mapping[int, torch.Tensor], kept: torch.Tensor) -> str:
    """Why the boxes that an engine keeps are wrong; empty if they are right or near ties.

    Args:
        decision: A call of ``torchvision::nms``, in float64 too.
        slacks: How far the engine's boxes (0) and scores (1) may be from the float64 ones.
        kept: The indices of the boxes that the engine keeps.
    """
    boxes, scores = tensors((decision.float64_args, decision.float64_kwargs))[:2]
    threshold = float(
        decision.float64_args[2] if len(decision.float64_args) > 2 else decision.float64_kwargs["iou_threshold"]
    )
    count = boxes.shape[0]
    if bool(((kept < 0) | (kept >= count)).any()):
        return "an index is out of range"
    if kept.unique().numel() != kept.numel():
        return "an index appears twice"
    moves = slacks.get(0, torch.zeros_like(boxes)).amax(-1)
    shift = slacks.get(1, torch.zeros_like(scores))
    top, top_shift = scores[kept], shift[kept]
    rising = top[1:] - top[:-1] > top_shift[1:] + top_shift[:-1]
    if bool(rising.any()):
        return f"{int(rising.sum())} of {kept.numel()} boxes are kept before one with a better score"
    epsilon = torch.finfo(tensors((decision.own_args, decision.own_kwargs))[0].dtype).eps
    overlap, slack = _overlaps(boxes[kept], boxes, moves[kept], moves, epsilon)
    among = (overlap - slack)[:, kept]
    together = (among > threshold) & ~torch.eye(kept.numel(), dtype=torch.bool)
    if bool(together.any()):
        return f"{int(together.any(1).sum())} of {kept.numel()} boxes overlap another that is kept"
    beaten = (overlap + slack > threshold) & (top[:, None] + top_shift[:, None] >= scores - shift)
    lost = ~beaten.any(0)
    lost[kept] = False
    return (
        f"{int(lost.sum())} of {count} boxes are dropped though no box that is kept overlaps them" if lost.any() else ""
    )


def _overlaps(
    one: torch.Tensor, other: torch.Tensor, move: torch.Tensor, others_move: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The intersection over union of all pairs of boxes, and how far it moves when their corners move."""
    corner = torch.maximum(one[:, None, :2], other[None, :, :2])
    sides = (torch.minimum(one[:, None, 2:], other[None, :, 2:]) - corner).clamp(min=0)
    lengths, others = one[:, 2:] - one[:, :2], other[:, 2:] - other[:, :2]
    shared = sides.prod(-1)
    whole = lengths.prod(-1)[:, None] + others.prod(-1) - shared
    # A side moves by no more than both of its ends do.
    ends = 2 * torch.maximum(move[:, None], others_move)
    shared_slack = sides.sum(-1) * ends + ends * ends
    whole_slack = shared_slack + ends * (lengths.sum(-1)[:, None] + others.sum(-1)).abs()
    found = torch.where(whole > 0, shared / whole, 0.0)
    slack = (shared_slack + found * whole_slack) / (whole - whole_slack).clamp(min=1e-300) + _EPSILONS * epsilon * found
    return found, torch.where(whole > 0, slack, 0.0)
