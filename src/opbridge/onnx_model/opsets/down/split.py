"""Split: the sizes are an input since opset 13, and the number of outputs is an attribute since opset 18."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.dynamic_shapes import size_along
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("Split", version=18)
def sizes_instead_of_a_number(site: Site) -> None:
    """The number of outputs becomes a list of sizes."""
    number = site.attribute("num_outputs")
    if number is None:
        return
    data, axis, op = site.input(0), site.attribute("axis"), site.op
    assert data is not None
    site.set(num_outputs=None)
    size = data.shape[axis] if data.shape is not None else None
    if isinstance(size, int):
        part = -(-size // number)
        sizes = op.constant(np.array([part] * (number - 1) + [size - part * (number - 1)], dtype=np.int64))
    else:
        size = size_along(op, data, axis)
        part = op.Div(op.Add(size, number - 1), number)
        sizes = op.Concat(*[part] * (number - 1), op.Sub(size, op.Mul(part, number - 1)), axis=0)
    site.set_inputs(data, sizes)


@down("Split", version=13)
def sizes_attribute(site: Site) -> None:
    """The sizes become an attribute."""
    sizes = site.input(1)
    if sizes is None:
        return
    values = known(sizes)
    if values is not None and (values > 0).all():
        site.set_inputs(site.input(0))
        site.set(split=[int(size) for size in values])
        return
    site.replace(*_slices(site, sizes))


def _slices(site: Site, sizes: ir.Value) -> list[ir.Value]:
    """Each part as a slice, because a size is known only at run time or is zero, which engines refuse."""
    op, data, axis = site.op, site.input(0), site.attribute("axis")
    if data is None or (data.shape is None and axis < 0):
        raise CannotExpress("the rank of its input is not known")
    axes = op.constant(np.array([axis], dtype=np.int64))
    parts, start = [], op.constant(np.zeros(1, dtype=np.int64))
    for position in range(len(site.node.outputs)):
        end = op.Add(start, op.Gather(sizes, op.constant(np.array([position])), axis=0))
        parts.append(op.Slice(data, start, end, axes))
        start = end
    return parts
