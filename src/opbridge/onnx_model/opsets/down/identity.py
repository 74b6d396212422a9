"""Identity: sequences since opset 14, optionals since opset 16."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Identity", version=16)
@down("Identity", version=14)
@down("Identity", version=13)
def removed(site: Site) -> None:
    """A sequence or an optional is used directly."""
    value = site.input(0)
    used_inside = not site.node.outputs[0].is_graph_output()
    if value is not None and used_inside and isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        site.replace(value)
