"""Interpolation with operators of opset 11, for GridSample, DeformConv and RoiAlign."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder

__all__ = ["gather_points", "linear", "sizes_of"]


def sizes_of(op: Builder, data: ir.Value, first: int, number: int) -> list[ir.Value]:
    """The sizes of ``number`` axes from ``first`` on, as int64 scalars."""
    shape = op.Shape(data)
    return [op.Gather(shape, op.constant(np.array(first + i)), axis=0) for i in range(number)]


def gather_points(
    op: Builder, flat: ir.Value, places: Sequence[ir.Value], sizes: Sequence[ir.Value], *, zeros: bool
) -> ir.Value:
    """The elements of ``flat`` (N, C, size) at integer positions of shape (N, P), as a tensor (N, C, P).

    Args:
        op: The builder of the nodes.
        flat: The data with flattened spatial axes.
        places: The positions along each spatial axis, as float tensors.
        sizes: The sizes of these axes, as integers.
        zeros: Whether elements outside the data are zero; otherwise the nearest element is used.
    """
    index, inside = None, None
    for place, size in zip(places, sizes, strict=True):
        zero = op.like(0, place)
        last = op.cast(op.Sub(size, op.constant(np.array(1))), _dtype(place))
        clipped = op.cast(op.Max(zero, op.Min(place, last)), ir.DataType.INT64)
        index = clipped if index is None else op.Add(op.Mul(index, size), clipped)
        if zeros:
            within = op.Not(op.Or(op.Less(place, zero), op.Greater(place, last)))
            inside = within if inside is None else op.And(inside, within)
    channels = op.Gather(op.Shape(flat), op.constant(np.array([0, 1])), axis=0)
    points = op.Gather(op.Shape(index), op.constant(np.array([1])), axis=0)
    spread = op.Expand(_channel_axis(op, index), op.Concat(channels, points, axis=0))
    found = op.GatherElements(flat, spread, axis=2)
    if inside is not None:
        found = op.Where(_channel_axis(op, inside), found, op.like(0, flat))
    result: ir.Value = found
    return result


def linear(
    op: Builder, flat: ir.Value, points: Sequence[ir.Value], sizes: Sequence[ir.Value], *, zeros: bool
) -> ir.Value:
    """Linear interpolation of ``flat`` (N, C, size) at points with coordinates of shape (N, P), as (N, C, P)."""
    floors = [op.Floor(point) for point in points]
    parts = [op.Sub(point, floor) for point, floor in zip(points, floors, strict=True)]
    total = None
    for corner in itertools.product((0, 1), repeat=len(points)):
        places, weight = [], None
        for floor, part, upper in zip(floors, parts, corner, strict=True):
            places.append(op.Add(floor, 1) if upper else floor)
            share = part if upper else op.Sub(op.like(1, part), part)
            weight = share if weight is None else op.Mul(weight, share)
        term = op.Mul(
            gather_points(op, flat, places, sizes, zeros=zeros), op.cast(_channel_axis(op, weight), _dtype(flat))
        )
        total = term if total is None else op.Add(total, term)
    result: ir.Value = total
    return result


def _channel_axis(op: Builder, value: Any) -> Any:
    """Reshape (N, P) to (N, 1, P)."""
    rows = op.Gather(op.Shape(value), op.constant(np.array([0])), axis=0)
    shape = op.Concat(rows, op.constant(np.array([1, -1])), axis=0)
    result: ir.Value = op.Reshape(value, shape)
    return result


def _dtype(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None
    return value.dtype
