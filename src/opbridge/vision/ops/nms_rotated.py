"""Non-maximum suppression of rotated boxes, for each image and class."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.precision import widened
from opbridge.vision.formulas.rotated import overlaps
from opbridge.vision.formulas.suppression import suppress


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, batch: int, classes: int, boxes: int, spread: float) -> Sample:
        centre = spread * torch.rand(batch, boxes, 2, generator=generator)
        size = 2 + 8 * torch.rand(batch, boxes, 2, generator=generator)
        angle = 6 * torch.rand(batch, boxes, 1, generator=generator) - 3
        scores = torch.rand(batch, classes, boxes, generator=generator)
        return Sample((torch.cat([centre, size, angle], 2), scores, 0.3, 0.2), name=name)

    return [sample("two images", 2, 3, 20, 30.0), sample("one class", 1, 1, 12, 10.0)]


@operator("opbridge_vision::nms_rotated", samples=_samples)
def nms_rotated(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float) -> Tensor:
    """The kept boxes as rows of (image, class, box), by image and class, then by falling score.

    Args:
        boxes: (images, boxes, 5): centre x and y, width, height, angle in radians.
        scores: (images, classes, boxes)
        iou_threshold: A box is dropped if it shares more than this part of the covered area with a better kept box.
        score_threshold: Only boxes with a higher score are returned.
    """
    ordered, order, kept = suppress(overlaps(widened(boxes), iou_threshold), widened(scores))
    image, label, place = (kept & (ordered > score_threshold)).nonzero().unbind(1)
    return torch.stack([image, label, order[image, label, place]], 1)


nms_rotated.kernel("nms_rotated.h")
