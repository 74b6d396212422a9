"""Sums over pooling windows, as convolutions with ones."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site

__all__ = ["full_pads", "pool_sum"]


def pool_sum(site: Site, data: ir.Value, pads: list[int] | None = None) -> ir.Value:
    """The sum over each window of a pooling node; elements outside the input are zero.

    ``pads`` replaces the node's pads including the additional pads of :func:`full_pads`. Channels are moved to the
    batch axis, so that their number does not have to be known.
    """
    op, kernel = site.op, site.attribute("kernel_shape")
    spatial = len(kernel)
    shape = op.Shape(data)
    start, middle, end = (op.constant(np.array([n])) for n in (0, 2, spatial + 2))
    front, sizes = op.Slice(shape, start, middle), op.Slice(shape, middle, end)
    each = op.Reshape(data, op.Concat(op.constant(np.array([-1, 1])), sizes, axis=0))
    weight = op.like(np.ones((1, 1, *kernel)), data)
    auto = site.attribute("auto_pad")
    summed = op.Conv(
        each,
        weight,
        kernel_shape=kernel,
        strides=site.attribute("strides"),
        dilations=site.attribute("dilations"),
        auto_pad=auto if auto != "NOTSET" else None,
        pads=(full_pads(site, data) if pads is None else pads) if auto == "NOTSET" else None,
    )
    back = op.Concat(front, op.Slice(op.Shape(summed), middle, end), axis=0)
    result: ir.Value = op.Reshape(summed, back)
    return result


def full_pads(site: Site, data: ir.Value) -> list[int]:
    """The pads, plus those that ``ceil_mode`` adds at the end for one more window."""
    kernel = site.attribute("kernel_shape")
    pads = site.attribute("pads") or [0] * (2 * len(kernel))
    if not site.attribute("ceil_mode"):
        return pads
    strides = site.attribute("strides") or [1] * len(kernel)
    dilations = site.attribute("dilations") or [1] * len(kernel)
    wider = list(pads)
    for axis, size in enumerate(kernel):
        length = data.shape[axis + 2] if data.shape is not None else None
        if not isinstance(length, int):
            raise CannotExpress("ceil_mode with sizes that are known only at run time")
        before, after = pads[axis], pads[axis + len(kernel)]
        extent = dilations[axis] * (size - 1) + 1
        windows = math.ceil((length + before + after - extent) / strides[axis]) + 1
        # A window that would begin after the end of the input is omitted.
        if (windows - 1) * strides[axis] >= length + before:
            windows -= 1
        wider[axis + len(kernel)] = (windows - 1) * strides[axis] + extent - length - before
    return wider
