"""BitCast: new in opset 26."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("BitCast", version=26)
def cast_of_integers(site: Site) -> None:
    """Between integers, the node becomes a Cast, which keeps the bits."""
    wanted = ir.DataType(site.attribute("to"))
    own = site.dtype(site.input(0))
    if own is wanted:
        site.replace(site.op.Identity(site.input(0)))
    elif own.is_integer() and wanted.is_integer():
        site.replace(site.op.cast(site.input(0), wanted))
    else:
        raise CannotExpress("no operator before opset 26 reads the bits of a float")
