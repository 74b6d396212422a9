"""Range: float16 and bfloat16, computed in float32, since opset 27."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Range", version=27)
def counted_in_float(site: Site) -> None:
    """Ranges of 16-bit floats are computed in float32, as in opset 27."""
    wide = ir.DataType(site.attribute("stash_type"))
    site.set(stash_type=None)
    dtype, op = site.dtype(site.input(0)), site.op
    if dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        site.replace(op.cast(op.Range(*(op.cast(site.input(i), wide) for i in range(3))), dtype))
