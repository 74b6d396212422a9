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
    """The indices (int64) of the boxes (N, 4) that survive among those of their class ``idxs``, by descending score.

    torchvision chooses its algorithm by the number of boxes, which is known only when the model runs. This is the one
    that it traces: a single suppression, of boxes that are moved apart by class. It takes an empty set as well.
    """
    from torchvision.ops import nms

    # The number that is added is the largest of an empty set, and moves nothing: coordinates are not negative.
    width = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    offsets = idxs.to(boxes) * (width + 1)
    return nms(boxes + offsets[:, None], scores, iou_threshold)
