"""Sampling a volume at places of a grid."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision

_ZEROS, _BORDER = 0, 1
_NEAREST, _CUBIC = 1, 2
_AT_ONCE = 16
"""So many voxels of each place are held in memory together."""


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


def _keys(distance: Tensor) -> Tensor:
    """The cubic convolution kernel (Keys, 1981) with a = -0.75, for distances up to 2."""
    x = distance.abs()
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((-0.75 * x + 3.75) * x - 6) * x + 3
    return torch.where(x <= 1, near, far)


def _is_inside(place: Tensor, length: int) -> Tensor:
    return (place >= 0) & (place <= length - 1)


def _read(input: Tensor, taps: list[Tensor]) -> Tensor:
    """The voxels (N, places, z y x, C) at whole z, y, x (N, places, ..), 0 outside.

    A frame of zeros stands for all that is outside, so that each axis has its own index. Voxels are gathered with all
    their channels.
    """
    framed = torch.nn.functional.pad(input, [1] * 6)
    batch, channels = framed.shape[:2]
    index = torch.arange(batch).reshape(-1, 1, 1)
    for tap, length in zip(taps, input.shape[2:], strict=True):
        place = torch.where(_is_inside(tap, length), tap + 1, 0).to(torch.int64)
        index = (index.unsqueeze(-1) * (length + 2) + place.unsqueeze(-2)).flatten(-2)
    rows = framed.movedim(1, -1).flatten(0, 3)
    return rows.index_select(0, index.flatten()).reshape([*index.shape, channels])


def _summed(input: Tensor, taps: list[Tensor], weights: list[Tensor]) -> Tensor:
    """The voxels of each place (N, places, taps) with their weights, as (N, places, C): some layers after the other.

    A place at infinity has weights that are NaN, which do not count outside.
    """
    depth, height, width = (
        torch.where(_is_inside(tap, length), weight, 0)
        for tap, length, weight in zip(taps, input.shape[2:], weights, strict=True)
    )
    area = (height.unsqueeze(-1) * width.unsqueeze(-2)).flatten(-2)
    layers = max(1, _AT_ONCE // area.shape[-1])
    parts = []
    for share, first in zip(depth.split(layers, -1), taps[0].split(layers, -1), strict=True):
        weight = (share.unsqueeze(-1) * area.unsqueeze(-2)).flatten(-2)
        parts.append(torch.matmul(weight.unsqueeze(-2), _read(input, [first, *taps[1:]])).squeeze(-2))
    return functools.reduce(torch.add, parts)


def _linear(input: Tensor, places: list[Tensor]) -> Tensor:
    """The eight voxels around each place, weighted by the volumes opposite to them."""
    taps, weights = [], []
    for place in places:
        below = place.floor()
        share = place - below
        taps.append(torch.stack([below, below + 1], -1))
        weights.append(torch.stack([1 - share, share], -1))
    return _summed(input, taps, weights)


def _cubic(input: Tensor, voxels: list[Tensor], padding_mode: int, align_corners: bool) -> Tensor:
    """The 64 voxels around each place, each moved inside by itself as the padding says."""
    taps, weights = [], []
    for place, length in zip(voxels, input.shape[2:], strict=True):
        offset = torch.arange(-1, 3)
        below = place.floor().unsqueeze(-1)
        weights.append(_keys(place.unsqueeze(-1) - below - offset))
        taps.append(_padded(below + offset, length, padding_mode, align_corners))
    return _summed(input, taps, weights)


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
        taps = [place.round().unsqueeze(-1) for place in places]
        result = _read(input, taps).squeeze(-2) if is_nearest else _linear(input, places)
    return result.mT.reshape([*input.shape[:2], *grid.shape[1:4]])


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
