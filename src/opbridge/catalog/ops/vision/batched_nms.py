"""Non-maximum suppression within each class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torchvision.ops.boxes.batched_nms")
def batched_nms(
    original: Callable[..., Tensor], boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float
) -> Tensor:
    """The indices (int64) of the boxes (N, 4) that suppression within each class ``idxs`` keeps, by descending score.

    torchvision selects an algorithm by the number of boxes, which is known only at run time. This rewrite uses the one
    that torchvision traces: a single suppression of boxes that are offset by class. It supports empty sets of boxes.
    """
    from torchvision.ops import nms

    # The additional 0 defines the maximum of an empty set; it has no other effect, as coordinates are not negative.
    width = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    offsets = idxs.to(boxes) * (width + 1)
    return nms(boxes + offsets[:, None], scores, iou_threshold)
