"""Sampling a volume at places of a grid."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.numerics.series import in_working_precision
from opbridge.spec import decomposition

_ZEROS, _BORDER = 0, 1
_NEAREST, _CUBIC = 1, 2


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


def _voxels(coordinate: Tensor, length: int, align_corners: bool) -> Tensor:
    """[-1, 1] on the axis, in voxels."""
    return (coordinate + 1) / 2 * (length - 1) if align_corners else ((coordinate + 1) * length - 1) / 2


def _padded(place: Tensor, length: int, padding_mode: int, align_corners: bool) -> Tensor:
    """A place outside moved inside, as the padding says."""
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


def _keys(distance: Tensor) -> Tensor:
    """The cubic convolution kernel (Keys, 1981) with a = -0.75, for distances up to 2."""
    x = distance.abs()
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((-0.75 * x + 3.75) * x - 6) * x + 3
    return torch.where(x <= 1, near, far)


def _taps(count: int, axis: int) -> Tensor:
    """Which of the ``count`` voxels around a place each of all ``count ** 3`` combinations takes on an axis."""
    return (torch.arange(count**3) // count**axis % count).unsqueeze(-1)


def _summed(input: Tensor, corners: list[Tensor], weight: Tensor) -> Tensor:
    """The voxels (N, taps, places) of each place with their weights, as (N, C, places)."""
    voxels = _read(input, [corner.flatten(1) for corner in corners], weight.flatten(1).unsqueeze(1))
    return voxels.reshape([*voxels.shape[:2], corners[0].shape[1], -1]).sum(2)


def _linear(input: Tensor, places: list[Tensor]) -> Tensor:
    """The eight voxels around each place, weighted by the volumes opposite to them."""
    corners, weight = [], torch.ones((), dtype=places[0].dtype)
    for axis, place in enumerate(places):
        upper = _taps(2, axis)
        below = place.floor().unsqueeze(1)
        share = place.unsqueeze(1) - below
        corners.append(below + upper)
        weight = weight * torch.where(upper == 1, share, 1 - share)
    return _summed(input, corners, weight)


def _cubic(input: Tensor, voxels: list[Tensor], padding_mode: int, align_corners: bool) -> Tensor:
    """The 64 voxels around each place, each moved inside by itself as the padding says."""
    corners, weight = [], torch.ones((), dtype=voxels[0].dtype)
    for axis, (place, length) in enumerate(zip(voxels, input.shape[2:], strict=True)):
        offset = _taps(4, axis) - 1
        below = place.floor().unsqueeze(1)
        weight = weight * _keys(place.unsqueeze(1) - below - offset)
        corners.append(_padded(below + offset, length, padding_mode, align_corners))
    return _summed(input, corners, weight)


@decomposition("aten::grid_sampler_3d")
@in_working_precision
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``input`` (N, C, D, H, W) at the places of ``grid`` (N, d, h, w, 3), each x, y, z in [-1, 1].

    grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor

    The eight voxels around a place, weighted by how near they are (mode 0), the nearest one, halves to the even
    (mode 1), or the 64 around it by cubic convolution (mode 2). ONNX has GridSample for volumes from opset 20 on, with
    kernels in few engines.
    """
    voxels = [_voxels(grid[..., 2 - axis].flatten(1), input.shape[2 + axis], align_corners) for axis in range(3)]
    if interpolation_mode == _CUBIC:
        result = _cubic(input, voxels, padding_mode, align_corners)
    else:
        lengths = input.shape[2:]
        places = [
            _padded(voxel, length, padding_mode, align_corners) for voxel, length in zip(voxels, lengths, strict=True)
        ]
        is_nearest = interpolation_mode == _NEAREST
        result = _read(input, [place.round() for place in places], 1.0) if is_nearest else _linear(input, places)
    return result.reshape([*input.shape[:2], *grid.shape[1:4]])


@decomposition("aten::grid_sampler", overrides="torch.onnx maps volumes with cubic interpolation to what ONNX lacks")
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``input`` at the places of ``grid``: volumes with cubic interpolation, all others as torch maps them.

    grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor
    """
    if input.dim() != 5 or interpolation_mode != _CUBIC:
        return NotImplemented
    return torch.ops.aten.grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners)
