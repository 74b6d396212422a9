"""``affine_grid`` with dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.functional.affine_grid")
@rewrite("torch.affine_grid_generator")
def affine_grid(
    original: Callable[..., Tensor], theta: Tensor, size: Sequence[Any], align_corners: bool | None = None
) -> Any:
    """A grid of places in an image or a volume, transformed by ``theta``.

    torch would make dynamic sizes constant, and compares the smallest size with 0, also where only the data decide it.

    affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor
    """
    spatial = tuple(size)[2:]
    if not any(isinstance(number, torch.SymInt) for number in size):
        return NotImplemented
    if not any(isinstance(number, torch.SymInt) for number in spatial):
        return torch.ops.aten.affine_grid_generator(theta, list(size), bool(align_corners))
    axes = [_places(number, align_corners, theta) for number in spatial]
    # The last axis of the image is the first coordinate.
    places = torch.meshgrid(axes, indexing="ij")[::-1]
    grid = torch.stack([*places, torch.ones_like(places[0])], -1).flatten(0, -2)
    return (grid @ theta.mT).unflatten(1, spatial)


def _places(size: Any, align_corners: bool | None, like: Tensor) -> Tensor:
    """The centres of pixels between -1 and 1, or of the outermost ones at -1 and 1; a single pixel is at 0."""
    doubled = 2 * torch.arange(size, device=like.device) + 1 - size
    return doubled.to(like.dtype) / (torch.sym_max(size - 1, 1) if align_corners else size)
