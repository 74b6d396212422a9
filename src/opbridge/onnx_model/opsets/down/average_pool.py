"""AveragePool: dilations since opset 19."""

import numpy as np

from opbridge.onnx_model.opsets.pooling import full_pads, pool_sum
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("AveragePool", version=19)
def convolved(site: Site) -> None:
    """With dilations, the node becomes a convolution with ones."""
    dilations = site.attribute("dilations")
    if not dilations or set(dilations) == {1}:
        site.set(dilations=None)
        return
    data, op = site.input(0), site.op
    assert data is not None
    own = full_pads(site, data) if site.attribute("auto_pad") == "NOTSET" else None
    total = pool_sum(site, data, own)
    ones = op.Expand(op.like(1, data), op.Shape(data))
    pads = site.attribute("pads")
    if site.attribute("count_include_pad") and own and pads and any(pads):
        # The count includes the pads but not the additional pads of ceil_mode.
        added = [full - given for full, given in zip(own, pads, strict=True)]
        half = len(pads) // 2
        around = op.constant(np.array([0, 0, *pads[:half], 0, 0, *pads[half:]]))
        site.replace(op.Div(total, pool_sum(site, op.Pad(ones, around, op.like(1, data)), added)))
        return
    site.replace(op.Div(total, pool_sum(site, ones, own)))


@down("AveragePool", "MaxPool", version=22)
def last_window(site: Site) -> None:
    """A last window that would begin in the padding, which older opsets include, is removed."""
    data, kernel = site.input(0), site.attribute("kernel_shape")
    if not site.attribute("ceil_mode") or data is None or data.shape is None or site.attribute("auto_pad") != "NOTSET":
        return
    half = len(kernel)
    if not all(isinstance(size, int) for size in data.shape[2:]):
        return
    own = site.attribute("pads") or [0] * (2 * half)
    strides = site.attribute("strides") or [1] * half
    full = full_pads(site, data)
    # Additional pads below one stride add a window; negative additional pads remove one.
    if all(full[i + half] >= own[i + half] for i in range(half)):
        return
    if any(full[i + half] > own[i + half] for i in range(half)) and site.attribute("count_include_pad"):
        raise CannotExpress("ceil_mode that adds a window on one axis and leaves one out on another")
    if any(full[i + half] < own[i + half] - strides[i] for i in range(half)):
        raise CannotExpress("a pad that is wider than a stride")
    site.set(ceil_mode=None, pads=[*own[:half], *(max(a, b) for a, b in zip(full[half:], own[half:], strict=True))])
