"""Corner pooling (CornerNet, arXiv:1808.01244)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.overlap import check_choice

_DIRECTIONS = {"top": (2, 1), "bottom": (2, -1), "left": (3, 1), "right": (3, -1)}
"""The axis of each mode, and 1 if the pixels with larger indices count, otherwise -1."""


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    return [Sample((torch.randn(2, 3, 5, 4, generator=generator), mode), name=mode) for mode in _DIRECTIONS]


@operator("opbridge_vision::corner_pool", samples=_samples)
def corner_pool(input: Tensor, mode: str) -> Tensor:
    """Each pixel becomes the largest of those from it to the border of the image in one direction.

    Args:
        input: (images, channels, height, width)
        mode: ``"top"`` looks down from a pixel, as for the top side of a box, ``"bottom"`` up, ``"left"`` to the right,
            ``"right"`` to the left.

    Raises:
        InputError: There is no such mode.
    """
    check_choice("mode", mode, tuple(_DIRECTIONS))
    axis, sign = _DIRECTIONS[mode]
    if sign > 0:
        return input.flip(axis).cummax(axis).values.flip(axis)
    return input.cummax(axis).values


@corner_pool.set_body
def _body(input: Tensor, mode: str) -> Tensor:
    axis, sign = _DIRECTIONS[mode]
    length = input.shape[axis]
    places = torch.arange(length)

    def go_on(reach: Tensor, best: Tensor) -> Tensor:
        return reach < length

    def double(reach: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
        further = (places + sign * reach).clamp(0, length - 1)
        return 2 * reach, torch.maximum(best, best.index_select(axis, further))

    # Each pixel is the largest of as many as ``reach``.
    return torch.while_loop(go_on, double, (torch.ones((), dtype=torch.int64), input))[1]


corner_pool.kernel("corner_pool.h")
