"""Mod: results with the divisor's sign for floats since opset 28."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Mod", version=28)
def sign_of_the_divisor(site: Site) -> None:
    """The remainder of floats gets the divisor's sign."""
    one, other, op = site.input(0), site.input(1), site.op
    if site.attribute("fmod"):
        return
    dtype = site.dtype(one)
    if not dtype.is_floating_point():
        return
    zero = op.constant(np.zeros((), dtype=np.float32))
    wide = ir.DataType.DOUBLE if dtype is ir.DataType.DOUBLE else ir.DataType.FLOAT
    one, other, zero = (op.cast(value, wide) for value in (one, other, zero))
    rest = op.Mod(one, other, fmod=1)
    differs = op.Xor(op.Less(rest, zero), op.Less(other, zero))
    adjusted = op.And(op.Not(op.Equal(rest, zero)), differs)
    site.replace(op.cast(op.Where(adjusted, op.Add(rest, other), rest), dtype))
