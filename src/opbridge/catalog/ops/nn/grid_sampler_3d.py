"""Sampling of volumes at the positions of a grid."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision

_ZEROS, _BORDER = 0, 1
_NEAREST, _CUBIC = 1, 2
_AT_ONCE = 16
"""The number of voxels per position that are in memory at the same time."""


def _reflected(place: Tensor, length: int, align_corners: bool) -> Tensor:
    """Reflect positions into the axis, at the centers of the outer voxels or at their outer faces."""
    low, span = (0.0, length - 1) if align_corners else (-0.5, length)
    if isinstance(span, int) and span == 0:
        return torch.zeros_like(place)
    distance = (place - low).abs()
    turns = torch.floor(distance / span)
    rest = distance - turns * span
    is_even = turns - 2 * torch.floor(turns / 2) == 0
    return torch.where(is_even, rest, span - rest) + low


def _voxels(coordinate: Tensor, length: int, align_corners: bool) -> Tensor:
    """Convert positions from [-1, 1] to voxels."""
    return (coordinate + 1) / 2 * (length - 1) if align_corners else ((coordinate + 1) * length - 1) / 2


def _padded(place: Tensor, length: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Move positions inside according to the padding mode."""
    if padding_mode == _ZEROS:
        return place
    if padding_mode != _BORDER:
        place = _reflected(place, length, align_corners)
    # As in PyTorch, NaN is outside at the upper end.
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
    """The voxels (N, positions, z y x, C) at integer z, y, x (N, positions, ..); 0 outside.

    A frame of zeros represents everything outside, so that each axis can be indexed separately. Voxels are gathered
    with all channels.
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
    """The weighted sum of the voxels of each position (N, positions, taps), as (N, positions, C), layer by layer.

    A position at infinity has weights of NaN, which are ignored for voxels outside.
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
    """Trilinear interpolation of the eight voxels around each position."""
    taps, weights = [], []
    for place in places:
        below = place.floor()
        share = place - below
        taps.append(torch.stack([below, below + 1], -1))
        weights.append(torch.stack([1 - share, share], -1))
    return _summed(input, taps, weights)


def _cubic(input: Tensor, voxels: list[Tensor], padding_mode: int, align_corners: bool) -> Tensor:
    """Tricubic interpolation of the 64 voxels around each position; the padding mode applies to each voxel."""
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
    """``input`` (N, C, D, H, W) sampled at the positions of ``grid`` (N, d, h, w, 3), each x, y, z in [-1, 1].

    grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor

    Mode 0 is trilinear interpolation, mode 1 selects the nearest voxel and rounds half to even, and mode 2 is tricubic
    convolution. ONNX has GridSample for volumes from opset 20 on, with kernels in few engines.
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


@decomposition(
    "aten::grid_sampler", overrides="ONNX has no cubic interpolation of volumes, to which torch.onnx maps it"
)
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``input`` sampled at the positions of ``grid``: volumes with cubic interpolation; the rest is left to torch.

    grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor
    """
    if input.dim() != 5 or interpolation_mode != _CUBIC:
        return NotImplemented
    return torch.ops.aten.grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners)
