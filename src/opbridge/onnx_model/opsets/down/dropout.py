"""Dropout: the ratio and the mode are inputs since opset 12; older versions are the identity at inference."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Dropout", version=12)
def without_inputs(site: Site) -> None:
    """The node becomes an identity at inference, and a random mask in training."""
    mode = site.input(2)
    ratio = known(site.input(1))
    training = np.array(False) if mode is None else known(mode)
    if training is None or (training.any() and not (ratio is not None and not ratio.any())):
        _drop(site)
    else:
        _keep(site)


def _keep(site: Site) -> None:
    data, op, mask = site.input(0), site.op, None
    if site.is_used(1):
        ones = op.ConstantOfShape(op.Shape(data), value=ir.tensor(np.ones(1, dtype=np.int64)))
        mask = op.Cast(ones, to=int(ir.DataType.BOOL))
    site.replace(op.Identity(data), mask)


def _drop(site: Site) -> None:
    """Keep each element with the probability 1 - ratio, and scale it by the inverse of that probability."""
    data, mode, op = site.input(0), site.input(2), site.op
    ratio = site.input(1)
    ratio = op.constant(np.array(0.5, dtype=np.float32)) if ratio is None else op.cast(ratio, ir.DataType.FLOAT)
    # At inference nothing is dropped.
    ratio = op.Mul(ratio, op.cast(mode, ir.DataType.FLOAT))
    chance = op.RandomUniformLike(data, dtype=int(ir.DataType.FLOAT), **_seed(site))
    mask = op.Not(op.Less(chance, ratio))
    one = op.like(1, ratio)
    # With a ratio of 1 all elements are zeroed, without a division by zero.
    scale = op.Where(op.Equal(ratio, one), one, op.Sub(one, ratio))
    kept = op.Div(op.Mul(op.cast(data, ir.DataType.FLOAT), op.cast(mask, ir.DataType.FLOAT)), scale)
    site.replace(op.cast(kept, site.dtype(data)), mask)


def _seed(site: Site) -> dict[str, float]:
    seed = site.attribute("seed")
    return {} if seed is None else {"seed": float(seed)}
