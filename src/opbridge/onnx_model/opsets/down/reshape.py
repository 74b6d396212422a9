"""Reshape: ``allowzero`` since opset 14; before, a zero in the shape always copies the input's size."""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.dynamic_shapes import reshape_exactly
from opbridge.onnx_model.opsets.inference import find_shape
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Reshape", version=14)
def zero_means_zero(site: Site) -> None:
    """A Reshape in which zeros mean zero becomes other operators with the same result."""
    data, shape = site.input(0), site.input(1)
    literal = site.attribute("allowzero")
    site.set(allowzero=None)
    if not literal or shape is None or data is None or _copies_the_same(data, site.node.outputs[0]):
        return
    values = known(shape)
    if values is None or (values == 0).any():
        site.replace(reshape_exactly(site.op, data, shape))


def _copies_the_same(data: ir.Value, result: ir.Value) -> bool:
    """Whether a zero can only occur where the input's size is zero too, so that both meanings are the same."""
    own, wanted = find_shape(data), result.shape
    if own is None or wanted is None:
        return False
    for place, size in enumerate(wanted):
        if isinstance(size, int):
            if size == 0:
                return False
        elif size.value is None or place >= len(own) or own[place] != size:
            return False
    return True
