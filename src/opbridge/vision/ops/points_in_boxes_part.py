"""The box in which each point is."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.vision.formulas.solids import contain
from opbridge.vision.ops.points_in_boxes_all import samples


@operator("opbridge_vision::points_in_boxes_part", samples=samples)
def points_in_boxes_part(points: Tensor, boxes: Tensor) -> Tensor:
    """The first box that contains each point, -1 if there is none: (batch, points), int64.

    The parameters are those of ``points_in_boxes_all``.
    """
    inside = contain(points, boxes)
    count = boxes.shape[1]
    # Positions minus their number, so that 0 stands for no box.
    places = torch.where(inside, torch.arange(count) - count, 0)
    first = torch.nn.functional.pad(places, (0, 1)).amin(2)
    return torch.where(first < 0, first + count, -1)


points_in_boxes_part.kernel("points_in_boxes_part.h")
