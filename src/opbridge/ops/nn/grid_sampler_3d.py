"""Sampling a volume at places of a grid."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.numerics.series import in_working_precision
from opbridge.spec import decomposition

_ZEROS, _BORDER = 0, 1
_NEAREST = 1


def _reflected(place: Tensor, length: int, align_corners: bool) -> Tensor:
    """A place outside mirrored into the axis, about the centres of the outer voxels or about their outer faces."""
    low, span = (0.0, length - 1) if align_corners else (-0.5, length)
    if isinstance(span, int) and span == 0:
        return torch.zeros_like(place)
    distance = (place - low).abs()
    turns = torch.floor(distance / span)
    rest = distance - turns * span
    is_even = turns - 2 * torch.floor(turns / 2) == 0
    return torch.where(is_even, rest, span - rest) + low


def _place(coordinate: Tensor, length: int, padding_mode: int, align_corners: bool) -> Tensor:
    """[-1, 1] on the axis, in voxels."""
    place = (coordinate + 1) / 2 * (length - 1) if align_corners else ((coordinate + 1) * length - 1) / 2
    if padding_mode == _ZEROS:
        return place
    if padding_mode != _BORDER:
        place = _reflected(place, length, align_corners)
    # NaN counts as outside on the upper side, as in PyTorch.
    place = torch.where(place < length - 1, place, length - 1)
    return torch.where(place > 0, place, 0)


def _read(input: Tensor, corner: list[Tensor], weight: Tensor | float) -> Tensor:
    """The voxels (N, C, places) at whole z, y, x (N, places), times a weight; 0 outside, whatever the weight."""
    inside = torch.ones_like(corner[0], dtype=torch.bool)
    index = torch.zeros_like(corner[0], dtype=torch.int64)
    for place, length in zip(corner, input.shape[2:], strict=True):
        is_in = (place >= 0) & (place <= length - 1)
        inside = inside & is_in
        index = index * length + torch.where(is_in, place, 0).to(torch.int64)
    flat = input.flatten(2)
    taken = flat.gather(2, index.unsqueeze(1).expand([-1, flat.shape[1], -1]))
    return torch.where(inside.unsqueeze(1), taken * weight, 0)


def _interpolated(input: Tensor, places: list[Tensor]) -> Tensor:
    """The eight voxels around each place, weighted by the volumes opposite to them."""
    corners, weight = [], torch.ones((), dtype=places[0].dtype)
    for axis, place in enumerate(places):
        upper = (torch.arange(8) // 2**axis % 2).unsqueeze(-1)
        below = place.floor().unsqueeze(1)
        share = place.unsqueeze(1) - below
        corners.append((below + upper).flatten(1))
        weight = weight * torch.where(upper == 1, share, 1 - share)
    voxels = _read(input, corners, weight.flatten(1).unsqueeze(1))
    return voxels.reshape([*voxels.shape[:2], 8, -1]).sum(2)


@decomposition("aten::grid_sampler_3d")
@in_working_precision
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``input`` (N, C, D, H, W) at the places of ``grid`` (N, d, h, w, 3), each x, y, z in [-1, 1].

    grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor

    The eight voxels around a place, weighted by how near they are (mode 0), or the nearest one, halves to the even
    (mode 1). ONNX has GridSample for volumes from opset 20 on, with kernels in few engines.
    """
    places = [
        _place(grid[..., 2 - axis].flatten(1), input.shape[2 + axis], padding_mode, align_corners) for axis in range(3)
    ]
    if interpolation_mode == _NEAREST:
        result = _read(input, [place.round() for place in places], 1.0)
    else:
        result = _interpolated(input, places)
    return result.reshape([*input.shape[:2], *grid.shape[1:4]])
