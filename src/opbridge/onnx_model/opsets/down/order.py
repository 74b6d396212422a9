"""GreaterOrEqual, LessOrEqual: new in opset 12."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("GreaterOrEqual", "LessOrEqual", version=12)
def greater_or_equal(site: Site) -> None:
    """The node becomes two comparisons."""
    one, other, op = site.input(0), site.input(1), site.op
    strict = "Greater" if site.node.op_type == "GreaterOrEqual" else "Less"
    # Equal of opset 11 does not support float16.
    if one is not None and one.dtype is ir.DataType.FLOAT16:
        one, other = (op.cast(value, ir.DataType.FLOAT) for value in (one, other))
    site.replace(op.Or(op.make(strict, one, other), op.Equal(one, other)))
