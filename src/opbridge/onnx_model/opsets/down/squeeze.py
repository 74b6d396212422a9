"""Squeeze: the axes, an input since opset 13, become an attribute."""

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.dynamic_shapes import axis_mask, reshape_exactly
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("Squeeze", version=13)
def axes_attribute(site: Site) -> None:
    """The axes become an attribute."""
    data, axes = site.input(0), site.input(1)
    if axes is None:
        return
    values = known(axes)
    if values is None:
        op = site.op
        rank = site.rank(data, "neither are its axes")
        kept = op.Not(axis_mask(op, axes, rank))
        site.replace(reshape_exactly(op, data, op.Compress(op.Shape(data), kept, axis=0)))
        return
    chosen = [int(axis) for axis in values.reshape(-1)]
    if any(axis < 0 for axis in chosen) and data is not None and data.shape is not None:
        chosen = normalized(chosen, len(data.shape))
    site.set_inputs(data)
    site.set(axes=chosen)
