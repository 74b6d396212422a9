"""RMSNormalization: a composition that keeps the input's shape."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("RMSNormalization", version=23)
def composed(site: Site) -> None:
    """The node becomes a mean of squares, a square root and a division."""
    data, scale, op = site.input(0), site.input(1), site.op
    rank = site.rank(data, "neither are the axes that it reduces")
    (axis,) = normalized([site.attribute("axis")], rank)
    axes = op.constant(np.arange(axis, rank))
    stash = ir.DataType(site.attribute("stash_type"))
    wide = op.cast(data, stash)
    mean = op.ReduceMean(op.Mul(wide, wide), axes)
    normal = op.Div(wide, op.Sqrt(op.Add(mean, site.attribute("epsilon"))))
    site.replace(op.Mul(op.cast(normal, site.dtype(scale)), scale))
