"""The overlap of convex quadrilaterals."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.overlap import overlap
from opbridge.vision.formulas.quadrilaterals import areas, shared_areas


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def quads(count: int) -> Tensor:
        """One corner in each quadrant around a centre, clockwise or counterclockwise."""
        centre = 15 * torch.rand(count, 1, 2, generator=generator)
        way = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
        corners = centre + way * (3 + 2 * torch.rand(count, 4, 2, generator=generator))
        return torch.cat([corners[::2], corners[1::2].flip(1)]).flatten(1)

    same = quads(4)
    return [
        Sample((quads(5), quads(8)), name="each with each"),
        Sample((same, torch.cat([same[:2], quads(2)]), "iof", True), name="aligned, of the first, some equal"),
    ]


@operator("opbridge_vision::box_iou_quadri", samples=_samples)
def box_iou_quadri(boxes1: Tensor, boxes2: Tensor, mode: str = "iou", aligned: bool = False) -> Tensor:
    """The shared area of each two convex quadrilaterals over the covered one: (n, m), or (n,) if ``aligned``.

    Args:
        boxes1: (n, 8): x and y of four corners, clockwise or counterclockwise.
        boxes2: (m, 8)
        mode: ``"iou"``, or ``"iof"`` for the shared area over that of the first quadrilateral.
        aligned: Whether quadrilateral i is compared with quadrilateral i alone.

    Raises:
        InputError: There is no such mode.
    """
    return overlap(boxes1, boxes2, mode, aligned, size=areas, shared=shared_areas)


box_iou_quadri.kernel("box_iou_quadri.h")
