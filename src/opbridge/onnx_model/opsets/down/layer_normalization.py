"""LayerNormalization: a custom composition, because the standard's body computes the variance as E[x^2] - E[x]^2."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("LayerNormalization", version=17)
def composed(site: Site) -> None:
    """The node becomes means, a square root and a division."""
    data, scale, bias, op = site.input(0), site.input(1), site.input(2), site.body
    rank = site.rank(data, "neither are the axes that it reduces")
    (axis,) = normalized([site.attribute("axis")], rank)
    axes = list(range(axis, rank))
    dtype = site.dtype(data)
    stash = ir.DataType(site.attribute("stash_type"))
    wide = op.cast(data, stash)
    mean = op.ReduceMean(wide, axes=axes)
    centred = op.Sub(wide, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), axes=axes)
    deviation = op.Sqrt(op.Add(variance, site.attribute("epsilon")))
    result = op.Mul(op.cast(op.Div(centred, deviation), dtype), scale)
    if bias is not None:
        result = op.Add(result, bias)
    inverse = op.Reciprocal(deviation) if site.is_used(2) else None
    site.replace(result, mean if site.is_used(1) else None, inverse)
