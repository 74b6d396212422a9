"""RoiAlign: a shift of half a pixel since opset 16."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.sampling import linear, sizes_of
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("RoiAlign", version=16)
def without_a_shift(site: Site) -> None:
    """With the shift, which allows boxes smaller than a pixel, the points are sampled by elementary operators."""
    mode = site.attribute("coordinate_transformation_mode")
    site.set(coordinate_transformation_mode=None)
    if mode == "output_half_pixel":
        return
    if site.attribute("mode") != "avg":
        raise CannotExpress("mode='max' with a shift of half a pixel is new in opset 16")
    if not site.attribute("sampling_ratio"):
        raise CannotExpress("with a shift of half a pixel, sampling_ratio must be given")
    _sample(site)


def _sample(site: Site) -> None:
    data, boxes, batch = (site.input(position) for position in range(3))
    op = site.op
    ratio = site.attribute("sampling_ratio")
    out = (site.attribute("output_height"), site.attribute("output_width"))
    assert data is not None
    assert boxes is not None
    sizes = sizes_of(op, data, 2, 2)
    channels = op.Gather(op.Shape(data), op.constant(np.array([1])), axis=0)
    each = op.Gather(data, batch, axis=0)
    flat = op.Reshape(each, op.Concat(op.constant(np.array([0])), channels, op.constant(np.array([-1])), axis=0))
    scaled = op.Sub(op.Mul(boxes, site.attribute("spatial_scale")), 0.5)
    rows, inside = [], []
    for axis, count in enumerate(out):
        low, high = (op.Gather(scaled, op.constant(np.array([1 - axis + side])), axis=1) for side in (0, 2))
        # The centers of ratio * count equal parts of the box.
        parts = op.like((np.arange(count * ratio) + 0.5) / (count * ratio), boxes)
        places = op.Add(low, op.Mul(op.Sub(high, low), parts))
        extent = op.cast(sizes[axis], site.dtype(boxes))
        within = op.Not(op.Or(op.Less(places, op.like(-1, places)), op.Greater(places, extent)))
        rows.append(op.Max(op.Min(places, op.Sub(extent, 1)), op.like(0, places)))
        inside.append(within)
    grid = (out[0] * ratio, out[1] * ratio)
    points = [_spread(op, value, axis, grid) for axis, value in enumerate(rows)]
    found = linear(op, flat, points, sizes, zeros=False)
    ok = [op.cast(_spread(op, op.cast(value, ir.DataType.FLOAT), axis, grid), site.dtype(data))
          for axis, value in enumerate(inside)]  # fmt: skip
    kept = op.Reshape(op.Mul(ok[0], ok[1]), op.constant(np.array([0, 1, -1])))
    split = op.constant(np.array([0, 0, out[0], ratio, out[1], ratio]))
    samples = op.Reshape(op.Where(op.Equal(kept, op.like(0, kept)), op.like(0, found), found), split)
    site.replace(op.make("ReduceMean", samples, axes=[3, 5], keepdims=0))


def _spread(op: Builder, value: Any, axis: int, grid: tuple[int, int]) -> Any:
    """The values of the rows or columns at every point of the grid, flattened."""
    shape = op.constant(np.array([[0, -1, 1], [0, 1, -1]][axis]))
    wide = op.Expand(op.Reshape(value, shape), op.constant(np.array([1, *grid])))
    return op.Reshape(wide, op.constant(np.array([0, -1])))
