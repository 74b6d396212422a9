"""SpaceToDepth: column-row-depth order since opset 28."""

import numpy as np

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("SpaceToDepth", version=28)
def blocks_transposed(site: Site) -> None:
    """The channels are transposed, because only the order depth-column-row is available."""
    mode, size = site.attribute("mode"), site.attribute("blocksize")
    site.set(mode=None)
    if mode != "CRD":
        return
    op = site.op
    blocks = op.SpaceToDepth(site.input(0), blocksize=size)
    shape = op.Shape(blocks)
    start, end = (op.constant(np.array([n])) for n in (2, 4))
    parts = op.Concat(op.constant(np.array([0, size * size, -1])), op.Slice(shape, start, end), axis=0)
    site.replace(op.Reshape(op.Transpose(op.Reshape(blocks, parts), perm=[0, 2, 1, 3, 4]), shape))
