"""GroupNormalization: new in opset 18; scale and bias per group until opset 20, per channel since opset 21."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("GroupNormalization", version=21)
def per_channel(site: Site) -> None:
    """The node becomes means over the groups, with a scale and a bias for each channel."""
    _compose(site, per_group=False)


@down("GroupNormalization", version=18)
def per_group(site: Site) -> None:
    """The node becomes means over the groups, with a scale and a bias for each group."""
    _compose(site, per_group=True)


def _compose(site: Site, *, per_group: bool) -> None:
    # The axes of ReduceMean are an attribute before opset 18 and an input since. InstanceNormalization has a single
    # form, and normalizes the data flattened to (N, groups, rest).
    data, op = site.input(0), site.op
    rank = site.rank(data, "neither is the place of its channels")
    if rank < 2:
        raise CannotExpress("its input has no channels")
    groups, dtype = site.attribute("num_groups"), site.dtype(data)
    stash = ir.DataType(site.attribute("stash_type") or ir.DataType.FLOAT)
    shape = op.Shape(data)
    grouped = op.Reshape(op.cast(data, stash), op.constant(np.array([0, groups, -1])))
    one, nought = op.like(np.ones(groups), grouped), op.like(np.zeros(groups), grouped)
    normal = op.cast(op.InstanceNormalization(grouped, one, nought, epsilon=site.attribute("epsilon")), dtype)
    ones = [1] * (rank - 2)
    if per_group:
        along = op.constant(np.array([1, -1, 1]))
        result = op.Add(op.Mul(normal, op.Reshape(site.input(1), along)), op.Reshape(site.input(2), along))
        site.replace(op.Reshape(result, shape))
        return
    along = op.constant(np.array([1, -1, *ones]))
    normal = op.Reshape(normal, shape)
    site.replace(op.Add(op.Mul(normal, op.Reshape(site.input(1), along)), op.Reshape(site.input(2), along)))
