"""The overlap of rotated boxes."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.overlap import overlap
from opbridge.vision.formulas.rotated import areas, shared_areas


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def boxes(count: int) -> Tensor:
        centre = 20 * torch.rand(count, 2, generator=generator)
        size = 2 + 8 * torch.rand(count, 2, generator=generator)
        return torch.cat([centre, size, 6 * torch.rand(count, 1, generator=generator) - 3], 1)

    return [
        Sample((boxes(6), boxes(9)), name="each with each"),
        Sample((boxes(7), boxes(7), "iof", True, False), name="aligned, of the first, counterclockwise"),
    ]


@operator("opbridge_vision::box_iou_rotated", samples=_samples)
def box_iou_rotated(
    boxes1: Tensor, boxes2: Tensor, mode: str = "iou", aligned: bool = False, clockwise: bool = True
) -> Tensor:
    """The shared area of each two rotated boxes over the covered one: (n, m), or (n,) if ``aligned``.

    Args:
        boxes1: (n, 5): centre x and y, width, height, angle in radians.
        boxes2: (m, 5)
        mode: ``"iou"``, or ``"iof"`` for the shared area over that of the first box.
        aligned: Whether box i is compared with box i alone.
        clockwise: Whether positive angles turn from the x axis to the y axis, which is clockwise if y points down.

    Raises:
        InputError: There is no such mode.
    """
    if not clockwise:
        signs = torch.tensor([1, 1, 1, 1, -1], dtype=boxes1.dtype)
        boxes1, boxes2 = boxes1 * signs, boxes2 * signs
    return overlap(boxes1, boxes2, mode, aligned, size=areas, shared=shared_areas)


box_iou_rotated.kernel("box_iou_rotated.h")
