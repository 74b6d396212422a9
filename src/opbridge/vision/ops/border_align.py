"""Border align: the largest samples along each side of a box (BorderDet, arXiv:2007.11056)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.sampling import pixels_of_samples


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, batch: int, channels: int, count: int, pool_size: int) -> Sample:
        image = torch.randn(batch, 4 * channels, 5, 6, generator=generator)
        # Some boxes go beyond the image.
        first = 6 * torch.rand(batch, count, 2, generator=generator) - 2
        boxes = torch.cat([first, first + 1 + 4 * torch.rand(batch, count, 2, generator=generator)], 2)
        return Sample((image, boxes, pool_size), name=name)

    return [sample("two images", 2, 2, 7, 3), sample("one step", 1, 3, 2, 1)]


@operator("opbridge_vision::border_align", samples=_samples)
def border_align(input: Tensor, boxes: Tensor, pool_size: int) -> Tensor:
    """The largest of ``pool_size + 1`` bilinear samples along each side of each box: (images, channels, boxes, 4).

    The sides are in the order top, left, bottom, right, and each has channels of its own.

    Args:
        input: (images, 4 * channels, height, width): the channels of the top sides first.
        boxes: (images, boxes, 4): x and y of two corners, 0 at the centre of the first pixel.
        pool_size: The number of steps from one end of a side to the other.
    """
    batch, _, height, width = input.shape
    count = boxes.shape[1]
    pixels = input.reshape(batch, 4, -1, height * width).transpose(2, 3)
    channels = pixels.shape[3]
    x1, y1, x2, y2 = boxes.unbind(2)
    step_x, step_y = (x2 - x1) / pool_size, (y2 - y1) / pool_size
    best: Tensor | None = None
    for at in range(pool_size + 1):
        x = torch.stack([x1 + at * step_x, x1, x2 - at * step_x, x2], 1)
        y = torch.stack([y1, y1 + at * step_y, y2, y2 - at * step_y], 1)
        value = torch.zeros((), dtype=input.dtype)
        for place, share in pixels_of_samples(y, x, height, width):
            value = value + pixels.gather(2, place[..., None].expand(-1, -1, -1, channels)) * share[..., None]
        best = value if best is None else torch.maximum(best, value)
    assert best is not None
    return best.reshape(batch, 4, count, channels).permute(0, 3, 2, 1)


border_align.kernel("border_align.h")
