"""Normalizations, Dropout and Scan."""

from typing import Any

import numpy as np

from opbridge.onnx_model.opsets.dynamic_shapes import size_along
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import up


@up("BatchNormalization", version=9)
def spatial(site: Site) -> None:
    """Only per-channel statistics remain."""
    if site.attribute("spatial") != 1:
        raise CannotExpress("opset 9 has no statistics for each activation (spatial=0)")
    site.set(spatial=None)


@up("BatchNormalization", version=14)
def inference(site: Site) -> None:
    """Unused training outputs are removed."""
    if any(site.is_used(position) for position in range(1, len(site.node.outputs))):
        raise CannotExpress("its statistics are used, which opset 14 computes only in training, and differently")
    if len(site.node.outputs) > 1:
        site.replace(site.again(*site.node.inputs, outputs=1))


@up("Dropout", version=10)
def mask_of_bool(site: Site) -> None:
    """A used mask is cast to its former type."""
    if len(site.node.outputs) > 1:
        result, mask = site.again(site.input(0), outputs=2)
        site.replace(result, site.op.cast(mask, site.dtype(site.input(0))) if site.is_used(1) else None)


@up("Scan", version=9)
def batches(site: Site) -> None:
    """A Scan over a batch of sequences is refused, because opset 9 does not have one."""
    raise CannotExpress("opset 9 has no Scan over a batch of sequences")


@up("GroupNormalization", version=21)
def per_channel(site: Site) -> None:
    """The scale and bias per group are repeated for each channel."""
    data, groups, op = site.input(0), site.attribute("num_groups"), site.op
    assert data is not None
    each = op.Div(size_along(op, data, 1), op.constant(np.array([groups])))
    shape = op.Concat(op.constant(np.array([groups])), each, axis=0)

    def spread(value: Any) -> Any:
        column = op.Reshape(value, op.constant(np.array([-1, 1])))
        return op.Reshape(op.Expand(column, shape), op.constant(np.array([-1])))

    site.set_inputs(data, spread(site.input(1)), spread(site.input(2)))
