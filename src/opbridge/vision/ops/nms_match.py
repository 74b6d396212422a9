"""Non-maximum suppression that returns which box suppressed which."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.precision import widened
from opbridge.vision.formulas.suppression import suppressors


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, batch: int, classes: int, boxes: int) -> Sample:
        first = 20 * torch.rand(batch, boxes, 2, generator=generator)
        last = first + 3 + 9 * torch.rand(batch, boxes, 2, generator=generator)
        scores = torch.rand(batch, classes, boxes, generator=generator)
        return Sample((torch.cat([first, last], 2), scores, 0.3, 0.4), name=name)

    return [sample("two images", 2, 3, 14), sample("one class", 1, 1, 9)]


@operator("opbridge_vision::nms_match", samples=_samples)
def nms_match(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float) -> Tensor:
    """Rows of (image, class, kept box, box that it suppresses), by image and class, then by falling scores.

    Args:
        boxes: (images, boxes, 4): x and y of two corners, the smaller ones first.
        scores: (images, classes, boxes)
        iou_threshold: A box is suppressed if it shares at least this part of the covered area with a better kept box.
        score_threshold: Only kept boxes with a higher score are returned.
    """
    boxes, scores = widened(boxes), widened(scores)
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(3)
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(2)
    overlapping = shared >= iou_threshold * (areas[:, :, None] + areas[:, None] - shared)
    ordered, order, suppressor = suppressors(overlapping, scores)
    # The suppressor of each box, and both as places in the order of the scores.
    pairs = suppressor[:, :, None, :] == torch.arange(scores.shape[2])[:, None]
    image, label, kept, place = (pairs & (ordered > score_threshold)[..., None]).nonzero().unbind(1)
    return torch.stack([image, label, order[image, label, kept], order[image, label, place]], 1)


nms_match.kernel("nms_match.h")
