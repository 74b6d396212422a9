"""Upsampling, a filter, and downsampling in one step (StyleGAN 2, arXiv:1912.04958)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, taps: tuple[int, ...], *options: object) -> Sample:
        image, filters = torch.randn(2, 3, 5, 6, generator=generator), torch.randn(taps, generator=generator)
        return Sample((image, filters, *options), name=name)

    return [
        sample("larger", (4, 3), [2, 3], [1, 1], [2, 1, 1, 2], False, 4.0),
        sample("smaller, cropped, flipped", (2, 3), [1, 1], [2, 2], [1, -1, -1, 2], True, 1.0),
        sample("separable", (3,), [2, 2], [3, 1], [1, 1, 1, 1], False, 0.5),
    ]


@operator("opbridge_vision::upfirdn2d", samples=_samples)
def upfirdn2d(
    input: Tensor,
    filter: Tensor,
    up: list[int],
    down: list[int],
    padding: list[int],
    flip_filter: bool = False,
    gain: float = 1.0,
) -> Tensor:
    """The image with zeros between its pixels, padded, convolved with a filter, of which every few pixels are kept.

    Args:
        input: (images, channels, height, width)
        filter: (rows, columns), or (taps,) for the outer product of the taps with themselves.
        up: The factors of the width and the height.
        down: The steps along the width and the height.
        padding: The zeros on the left, on the right, at the top and at the bottom; a negative number crops.
        flip_filter: Whether the filter is applied as it is (correlation) and not flipped (convolution).
        gain: A factor of the result.

    Returns:
        (images, channels, (height * up[1] + padding[2] + padding[3] - rows) // down[1] + 1, and the same for the width)
    """
    batch, channels, height, width = input.shape
    spread = torch.nn.functional.pad(
        input.reshape(batch, channels, height, 1, width, 1), (0, up[0] - 1, 0, 0, 0, up[1] - 1)
    )
    spread = spread.reshape(batch, channels, height * up[1], width * up[0])
    spread = torch.nn.functional.pad(spread, tuple(padding))
    taps = (filter if filter.dim() == 2 else filter[:, None] * filter) * gain
    rows, columns = taps.shape
    kept_height, kept_width = ((spread.shape[2 + k] - taps.shape[k]) // down[1 - k] + 1 for k in (0, 1))
    total = torch.zeros((), dtype=input.dtype)
    for p in range(rows):
        for q in range(columns):
            tap = taps[p, q] if flip_filter else taps[rows - 1 - p, columns - 1 - q]
            row_end, column_end = p + (kept_height - 1) * down[1] + 1, q + (kept_width - 1) * down[0] + 1
            total = total + spread[:, :, p : row_end : down[1], q : column_end : down[0]] * tap
    return total


upfirdn2d.kernel("upfirdn2d.h")
