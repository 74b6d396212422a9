"""Whether points are in boxes."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.solids import contain


def samples() -> list[Sample]:
    """Two clouds with boxes, some of which share space."""
    generator = torch.Generator().manual_seed(0)
    points = 6 * torch.rand(2, 15, 3, generator=generator)
    bottom, size = 6 * torch.rand(2, 4, 3, generator=generator), 2 + 4 * torch.rand(2, 4, 3, generator=generator)
    boxes = torch.cat([bottom, size, 6 * torch.rand(2, 4, 1, generator=generator) - 3], 2)
    return [Sample((points, boxes), name="two clouds")]


@operator("opbridge_vision::points_in_boxes_all", samples=samples)
def points_in_boxes_all(points: Tensor, boxes: Tensor) -> Tensor:
    """Whether each point is in each box: (batch, points, boxes), bool.

    A point on the bottom or the top of a box is in it, a point on another side is not.

    Args:
        points: (batch, points, 3)
        boxes: (batch, boxes, 7): the centre of the bottom as x, y and z, the sizes along these axes, and the angle in
            radians from the x axis to the y axis.
    """
    return contain(points, boxes)


points_in_boxes_all.kernel("points_in_boxes_all.h")
