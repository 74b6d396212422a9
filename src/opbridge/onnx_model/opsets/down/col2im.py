"""Col2Im: new in opset 18."""

import math

import numpy as np

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Col2Im", version=18)
def transposed_convolution(site: Site) -> None:
    """The node becomes a transposed convolution whose kernels move each element of a block to its position."""
    data, op = site.input(0), site.op
    image, block = known(site.input(1)), known(site.input(2))
    if image is None or block is None:
        raise CannotExpress("the sizes of the image and of its blocks are known only at run time")
    rank = len(block)
    strides = site.attribute("strides") or [1] * rank
    dilations = site.attribute("dilations") or [1] * rank
    pads = site.attribute("pads") or [0] * (2 * rank)
    extent = [d * (int(k) - 1) + 1 for d, k in zip(dilations, block, strict=True)]
    padded = [int(n) + pads[i] + pads[i + rank] for i, n in enumerate(image)]
    windows = [(n - e) // s + 1 for n, e, s in zip(padded, extent, strides, strict=True)]
    left = [n - ((w - 1) * s + e) for n, w, s, e in zip(padded, windows, strides, extent, strict=True)]
    size = math.prod(int(k) for k in block)
    columns = op.Reshape(data, op.constant(np.array([-1, size, *windows])))
    weight = op.like(np.eye(size).reshape(size, 1, *(int(k) for k in block)), data)
    # Elements at the end that no window reaches are padded with zeros, and the pads are cropped.
    summed = op.ConvTranspose(
        columns, weight, strides=strides, dilations=dilations, kernel_shape=[int(k) for k in block]
    )
    whole = op.Pad(summed, op.constant(np.array([0] * (rank + 4) + left)))
    axes = op.constant(np.arange(2, rank + 2))
    starts = op.constant(np.array(pads[:rank]))
    ends = op.constant(np.array([pads[i] + int(n) for i, n in enumerate(image)]))
    cut = op.Slice(whole, starts, ends, axes)
    batch = op.Slice(op.Shape(data), op.constant(np.array([0])), op.constant(np.array([1])))
    site.replace(op.Reshape(cut, op.Concat(batch, op.constant(np.array([-1, *image])), axis=0)))
