"""GridSample: new in opset 16; renamed modes and any number of axes since opset 20."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.sampling import gather_points, linear, sizes_of
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_OLD_MODES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
_CUBIC = -0.75


@down("GridSample", version=20)
def planes(site: Site) -> None:
    """The modes get their old names; other than two axes are sampled by elementary operators."""
    if site.rank(site.input(0), "neither is what it samples") == 4:
        mode = site.attribute("mode")
        site.set(mode=_OLD_MODES.get(mode, mode))
    else:
        _sample(site)


@down("GridSample", version=16)
def composed(site: Site) -> None:
    """The node becomes elementary operators."""
    _sample(site)


def _sample(site: Site) -> None:
    data, grid, op = site.input(0), site.input(1), site.op
    axes = site.rank(data, "neither is what it samples") - 2
    mode, padding = site.attribute("mode").removeprefix("bi"), site.attribute("padding_mode")
    assert data is not None
    if mode == "cubic" and axes != 2:
        raise CannotExpress("mode='cubic' for data that is not two-dimensional")
    sizes = sizes_of(op, data, 2, axes)
    shape = op.Shape(data)
    flat = op.Reshape(data, op.Concat(op.Gather(shape, op.constant(np.array([0, 1])), axis=0),
                                      op.constant(np.array([-1])), axis=0))  # fmt: skip
    points = []
    for axis in range(axes):
        # The coordinates of a point are in reverse order of the spatial axes.
        each = op.Gather(grid, op.constant(np.array(axes - 1 - axis)), axis=axes + 1)
        rows = op.Gather(shape, op.constant(np.array([0])), axis=0)
        each = op.Reshape(each, op.Concat(rows, op.constant(np.array([-1])), axis=0))
        points.append(_coordinate(site, each, sizes[axis]))
    align, zeros = bool(site.attribute("align_corners")), padding == "zeros"

    def folded(place: Any, size: Any) -> Any:
        return _reflected(op, place, size, align) if padding == "reflection" else place

    if mode == "nearest":
        places = [folded(op.Round(point), size) for point, size in zip(points, sizes, strict=True)]
        result = gather_points(op, flat, [op.Round(place) for place in places], sizes, zeros=zeros)
    elif mode == "cubic":
        result = _cubic(op, flat, points, sizes, zeros, folded)
    else:
        places = [folded(point, size) for point, size in zip(points, sizes, strict=True)]
        if padding == "border":
            places = [_clipped(op, place, size) for place, size in zip(places, sizes, strict=True)]
        result = linear(op, flat, places, sizes, zeros=zeros)
    front = op.Gather(shape, op.constant(np.array([0, 1])), axis=0)
    back = op.Slice(op.Shape(grid), op.constant(np.array([1])), op.constant(np.array([axes + 1])))
    site.replace(op.Reshape(result, op.Concat(front, back, axis=0)))


def _coordinate(site: Site, value: Any, size: Any) -> Any:
    """Convert coordinates from [-1, 1] to element positions."""
    op = site.op
    extent = op.cast(size, site.dtype(value))
    if site.attribute("align_corners"):
        return op.Mul(op.Div(op.Add(value, 1), op.like(2, value)), op.Sub(extent, 1))
    return op.Div(op.Sub(op.Mul(op.Add(value, 1), extent), 1), op.like(2, value))


def _clipped(op: Builder, place: Any, size: Any) -> Any:
    last = op.Sub(op.cast(size, place.dtype), 1)
    return op.Max(op.Min(place, last), op.like(0, place))


def _reflected(op: Builder, place: Any, size: Any, align: bool) -> Any:
    """Reflect positions outside at the borders: the centers of the outer elements or their outer edges."""
    low = op.like(0 if align else -0.5, place)
    extent = op.cast(size, place.dtype)
    span = op.Sub(extent, 1) if align else extent
    # The reflection has a period of twice the span, which is 0 for an axis of one element.
    span = op.Max(span, op.like(1e-6, place))
    away = op.Mod(op.Abs(op.Sub(place, low)), op.Add(span, span), fmod=1)
    back = op.Where(op.Greater(away, span), op.Sub(op.Add(span, span), away), away)
    return _clipped(op, op.Add(back, low), size)


def _cubic(op: Builder, flat: ir.Value, points: Any, sizes: Any, zeros: bool, folded: Any) -> Any:
    """Bicubic interpolation of the 4 x 4 elements around each point, with a = -0.75."""
    floors = [op.Floor(point) for point in points]
    weights = [_weights(op, op.Sub(point, floor)) for point, floor in zip(points, floors, strict=True)]
    total = None
    for row, column in itertools.product(range(4), repeat=2):
        places = [
            folded(op.Add(floor, offset - 1), size)
            for floor, offset, size in zip(floors, (row, column), sizes, strict=True)
        ]
        found = gather_points(op, flat, [op.Round(place) for place in places], sizes, zeros=zeros)
        weight = op.Mul(weights[0][row], weights[1][column])
        shape = op.Concat(op.Gather(op.Shape(weight), op.constant(np.array([0])), axis=0),
                          op.constant(np.array([1, -1])), axis=0)  # fmt: skip
        term = op.Mul(found, op.cast(op.Reshape(weight, shape), flat.dtype))
        total = term if total is None else op.Add(total, term)
    return total


def _weights(op: Builder, part: Any) -> Any:
    """Keys' kernel at the distances 1 + t, t, 1 - t and 2 - t."""
    a = _CUBIC
    rest = op.Sub(op.like(1, part), part)

    def near(t: Any) -> Any:
        return op.Add(op.Mul(op.Mul(op.Sub(op.Mul(t, a + 2), a + 3), t), t), 1)

    def far(t: Any) -> Any:
        return op.Sub(op.Mul(op.Add(op.Mul(op.Sub(op.Mul(t, a), 5 * a), t), 8 * a), t), 4 * a)

    return [far(op.Add(part, 1)), near(part), near(rest), far(op.Add(rest, 1))]
