"""Non-maximum suppression of boxes in space by their overlap in the bird's-eye view."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.precision import widened
from opbridge.vision.formulas.rotated import overlaps
from opbridge.vision.formulas.solids import seen_from_above
from opbridge.vision.formulas.suppression import suppress


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, count: int, rotated: bool) -> Sample:
        centre, size = 15 * torch.rand(count, 3, generator=generator), 2 + 5 * torch.rand(count, 3, generator=generator)
        boxes = torch.cat([centre, size, 6 * torch.rand(count, 1, generator=generator) - 3], 1)
        return Sample((boxes, torch.rand(count, generator=generator), 0.1, rotated), name=name)

    return [sample("rotated", 18, True), sample("upright", 12, False)]


@operator("opbridge_vision::nms3d", samples=_samples)
def nms3d(boxes: Tensor, scores: Tensor, iou_threshold: float, rotated: bool = True) -> Tensor:
    """The kept boxes by falling score: (kept,), int64.

    Args:
        boxes: (n, 7): the centre as x, y and z, the sizes along these axes, and the angle in radians from the x axis
            to the y axis.
        scores: (n,)
        iou_threshold: A box is dropped if, seen from above, it shares more than this part of the covered area with a
            better kept box.
        rotated: Whether the angles count; if not, it is mmcv's ``nms3d_normal``.
    """
    torch._check(scores.shape[0] == boxes.shape[0], lambda: f"{scores.shape[0]} scores of {boxes.shape[0]} boxes")
    seen = seen_from_above(widened(boxes))
    if not rotated:
        seen = torch.cat([seen[:, :4], torch.zeros_like(seen[:, :1])], 1)
    _, order, kept = suppress(overlaps(seen[None], iou_threshold), scores[None, None])
    return order[kept]


nms3d.kernel("nms3d.h")
