"""Optionals: new in opset 15; OptionalGetElement accepts other values since 18."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("OptionalGetElement", version=18)
def element_itself(site: Site) -> None:
    """The element of a value that is not an optional is the value itself."""
    value = site.input(0)
    if value is not None and not isinstance(value.type, ir.OptionalType):
        _put_through(site, value)


@down("OptionalHasElement", version=18)
def has_element(site: Site) -> None:
    """A value that is not an optional has an element, and an absent input has none."""
    value = site.input(0)
    if value is None or not isinstance(value.type, ir.OptionalType):
        site.replace(site.op.constant(np.array(value is not None)))


@down("OptionalGetElement", version=15)
def made_of(site: Site) -> None:
    """An optional that is created in the model is replaced by its element."""
    value = site.input(0)
    maker = None if value is None else value.producer()
    if maker is None or maker.op_type != "Optional" or not maker.inputs or maker.inputs[0] is None:
        raise CannotExpress("opset 14 has no optional values")
    _put_through(site, maker.inputs[0])


@down("Optional", "OptionalHasElement", version=15)
def unknown(site: Site) -> None:
    """An unused Optional is removed; other nodes are refused, because opset 14 has no optional values."""
    if site.node.op_type == "Optional" and not site.is_used(0):
        site.node.graph.remove(site.node, safe=True)  # type: ignore[union-attr]
        site.replaced = True
        return
    raise CannotExpress("opset 14 has no optional values")


def _put_through(site: Site, value: ir.Value) -> None:
    if site.node.outputs[0].is_graph_output():
        raise_for = isinstance(value.type, ir.SequenceType) and site.target < 14
        if raise_for:
            raise CannotExpress("opset 13 has no Identity of a sequence")
        site.replace(site.op.Identity(value))
    else:
        site.replace(value)
