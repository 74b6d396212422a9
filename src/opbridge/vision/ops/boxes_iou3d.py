"""The overlap of boxes in space."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.overlap import overlap
from opbridge.vision.formulas.solids import shared_volumes, volumes


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def boxes(count: int) -> Tensor:
        centre, size = 8 * torch.rand(count, 3, generator=generator), 2 + 5 * torch.rand(count, 3, generator=generator)
        return torch.cat([centre, size, 6 * torch.rand(count, 1, generator=generator) - 3], 1)

    return [
        Sample((boxes(6), boxes(9)), name="each with each"),
        Sample((boxes(7), boxes(7), "iof", True), name="aligned, of the first"),
    ]


@operator("opbridge_vision::boxes_iou3d", samples=_samples)
def boxes_iou3d(boxes1: Tensor, boxes2: Tensor, mode: str = "iou", aligned: bool = False) -> Tensor:
    """The shared volume of each two boxes over the covered one: (n, m), or (n,) if ``aligned``.

    Args:
        boxes1: (n, 7): the centre as x, y and z, the sizes along these axes, and the angle in radians from the x axis
            to the y axis.
        boxes2: (m, 7)
        mode: ``"iou"``, or ``"iof"`` for the shared volume over that of the first box.
        aligned: Whether box i is compared with box i alone.

    Raises:
        InputError: There is no such mode.
    """
    return overlap(boxes1, boxes2, mode, aligned, size=volumes, shared=shared_volumes)


boxes_iou3d.kernel("boxes_iou3d.h")
