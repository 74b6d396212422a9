"""DFT: new in opset 17; the axis is an input, and a one-sided transform can be inverted, since opset 20."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.fourier import transform
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("DFT", version=20)
def axis_attribute(site: Site) -> None:
    """The axis becomes an attribute; forms that opset 17 does not have become matrix products."""
    axis = known(site.input(2)) if site.input(2) is not None else np.array(-2)
    if axis is None:
        _along_the_middle(site)
        return
    if site.attribute("inverse") and site.attribute("onesided"):
        site.replace(_composed(site, site.input(0), int(axis.item())))
        return
    rank = site.rank(site.input(0), "neither is its axis")
    site.set_inputs(site.input(0), site.input(1))
    site.set(axis=normalized(axis, rank)[0])


def _along_the_middle(site: Site) -> None:
    """Flatten the axes before and after an axis that is known only at run time."""
    data, op, one = site.input(0), site.op, site.op.constant(np.array([1]))
    rank = site.rank(data, "neither is its axis")
    shape, last = op.Shape(data), op.constant(np.array([rank - 1]))
    axis = op.Reshape(op.cast(site.input(2), ir.DataType.INT64), one)
    axis = op.Mod(op.Add(axis, op.constant(np.array([rank]))), op.constant(np.array([rank])))
    after = op.Add(axis, one)
    front = op.Slice(shape, op.constant(np.array([0])), axis)
    back, parts = op.Slice(shape, after, last), op.Slice(shape, last, op.constant(np.array([rank])))

    def product(sizes: Any) -> Any:
        return op.make("ReduceProd", op.Concat(one, sizes, axis=0), keepdims=1)

    cube = op.Reshape(data, op.Concat(product(front), op.Slice(shape, axis, after), product(back), parts, axis=0))
    assert data is not None
    assert data.shape is not None
    cube.shape = ir.Shape([None, None, None, data.shape[-1]])
    inverse, onesided = site.attribute("inverse"), site.attribute("onesided")
    if inverse and onesided:
        result = _composed(site, cube, 1)
    else:
        result = op.DFT(cube, site.input(1), axis=1, inverse=inverse, onesided=onesided)
    length = op.Slice(op.Shape(result), one, op.constant(np.array([2])))
    site.replace(op.Reshape(result, op.Concat(front, length, back, op.constant(np.array([-1])), axis=0)))


@down("DFT", version=17)
def matrix_products(site: Site) -> None:
    """The node becomes products with matrices of cosines and sines."""
    site.replace(_composed(site, site.input(0), site.attribute("axis")))


def _composed(site: Site, data: ir.Value | None, axis: int) -> ir.Value:
    op = site.op
    rank = site.rank(data, "neither is its axis")
    (place,) = normalized([axis], rank)
    assert data is not None
    assert data.shape is not None
    parts = data.shape[-1]
    if parts not in (1, 2):
        raise CannotExpress("whether its input is real or complex is not known")
    # The axis is moved to the end, and the real and imaginary parts to the front.
    order = [rank - 1, *(i for i in range(rank - 1) if i != place), place]
    turned = op.Transpose(data, perm=order)
    real = op.Gather(turned, op.constant(np.array(0)), axis=0)
    imaginary = op.Gather(turned, op.constant(np.array(1)), axis=0) if parts == 2 else None
    length = site.input(1)
    length = None if length is None else op.Reshape(op.cast(length, ir.DataType.INT64), op.constant(np.array([1])))
    result = transform(
        op,
        real,
        imaginary,
        length,
        inverse=bool(site.attribute("inverse")),
        onesided=bool(site.attribute("onesided")),
    )
    turned_back: ir.Value = op.Transpose(result, perm=[order.index(i) for i in range(rank)])
    return turned_back
