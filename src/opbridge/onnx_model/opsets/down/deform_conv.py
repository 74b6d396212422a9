"""DeformConv: new in opset 19."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.sampling import linear, sizes_of
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("DeformConv", version=19)
def sampled(site: Site) -> None:
    """The shifted points are sampled by elementary operators and multiplied by the weights."""
    data, weight, offset, bias, mask = (site.input(position) for position in range(5))
    op = site.op
    if site.rank(data, "neither is what it convolves") != 4:
        raise CannotExpress("a deformable convolution of data that is not two-dimensional")
    assert data is not None
    assert weight is not None
    assert offset is not None
    shape = weight.shape
    kernel = site.attribute("kernel_shape") or (None if shape is None else list(shape[2:]))
    channels = None if shape is None else shape[1]
    if kernel is None or not isinstance(channels, int) or not all(isinstance(size, int) for size in kernel):
        raise CannotExpress("the shape of its weight is not known")
    group, shifts = site.attribute("group"), site.attribute("offset_group")
    batch = op.Gather(op.Shape(data), op.constant(np.array([0])), axis=0)
    each = channels * group // shifts
    # Each group of channels with its own offsets is moved to the batch axis.
    sizes = sizes_of(op, data, 2, 2)
    points, heights, widths = _points(site, offset, kernel, shifts)
    flat = op.Reshape(
        data, op.Concat(op.Mul(batch, op.constant(np.array([shifts]))), op.constant(np.array([each, -1])), axis=0)
    )
    values = linear(op, flat, points, sizes, zeros=True)
    taps = kernel[0] * kernel[1]
    if mask is not None:
        weights = op.Reshape(mask, op.Concat(op.Mul(batch, op.constant(np.array([shifts]))),
                                             op.constant(np.array([1, -1])), axis=0))  # fmt: skip
        values = op.Mul(values, weights)
    every = op.constant(np.array([-1]))
    columns = op.Reshape(values, op.Concat(batch, op.constant(np.array([group, channels * taps, -1])), axis=0))
    rows = op.Reshape(weight, op.constant(np.array([1, group, -1, channels * taps])))
    product = op.MatMul(rows, columns)
    result = op.Reshape(product, op.Concat(batch, every, heights, widths, axis=0))
    if bias is not None:
        result = op.Add(result, op.Reshape(bias, op.constant(np.array([1, -1, 1, 1]))))
    site.replace(result)


def _points(site: Site, offset: ir.Value, kernel: list[int], shifts: int) -> Any:
    """The position that each kernel point reads for each output position: two tensors (batch * shifts, positions)."""
    op = site.op
    strides, dilations = (site.attribute(name) or [1, 1] for name in ("strides", "dilations"))
    pads = site.attribute("pads") or [0, 0, 0, 0]
    shape = op.Shape(offset)
    out = [op.Gather(shape, op.constant(np.array([axis])), axis=0) for axis in (2, 3)]
    taps = kernel[0] * kernel[1]
    # (N, shifts * taps * 2, H, W), where the factor 2 is y, x.
    split = op.Reshape(offset, op.Concat(op.constant(np.array([-1, taps, 2])), *out, axis=0))
    points = []
    for axis in range(2):
        moved = op.Gather(split, op.constant(np.array(axis)), axis=2)
        end = op.Gather(out[axis], op.constant(np.array(0)), axis=0)
        starts = op.Range(op.constant(np.array(0)), end, op.constant(np.array(1)))
        starts = op.Sub(op.Mul(starts, strides[axis]), pads[axis])
        place = op.Reshape(
            op.cast(starts, site.dtype(offset)), op.constant(np.array([[1, 1, -1, 1], [1, 1, 1, -1]][axis]))
        )
        tap = np.indices(kernel)[axis].reshape(1, taps, 1, 1) * dilations[axis]
        total = op.Add(op.Add(moved, place), op.like(tap, offset))
        rows = op.Gather(op.Shape(total), op.constant(np.array([0])), axis=0)
        points.append(op.Reshape(total, op.Concat(rows, op.constant(np.array([-1])), axis=0)))
    return points, *out
