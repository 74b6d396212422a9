"""QLinearMatMul: 16-bit floating-point scales and float8 since opset 21."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_SCALES = (1, 4, 6)


@down("QLinearMatMul", version=21)
def scales_in_float(site: Site) -> None:
    """Scales in 16-bit floats are widened."""
    inputs = list(site.node.inputs)
    for position in _SCALES:
        inputs[position] = site.op.cast(inputs[position], ir.DataType.FLOAT)
    site.set_inputs(*inputs)
