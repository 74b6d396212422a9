"""Bilinear samples as RoI align takes them (arXiv:1703.06870)."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["pixels_of_samples"]


def pixels_of_samples(y: Tensor, x: Tensor, height: int, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The four pixels that samples lie between: their places ``row * width + column``, int64, and their shares.

    A sample less than a pixel outside of the image has the value of the border; those further away have shares of 0.

    Args:
        y: The rows (...), 0 at the centre of the first one.
        x: The columns (...), the same way.
        height: The rows of the image.
        width: Its columns.
    """
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.floor(), x.floor()
    for down in (0, 1):
        for right in (0, 1):
            share = (y - top if down else 1 - (y - top)) * (x - left if right else 1 - (x - left))
            row, column = (top + down).clamp(max=height - 1), (left + right).clamp(max=width - 1)
            yield row.to(torch.int64) * width + column.to(torch.int64), torch.where(inside, share, 0)
