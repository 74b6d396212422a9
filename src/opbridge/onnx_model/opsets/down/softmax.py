"""Softmax, LogSoftmax, Hardmax: up to opset 12 they operate on the input flattened to a matrix at the axis."""

from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import down


@down("Softmax", "LogSoftmax", "Hardmax", version=13)
def flattened(site: Site) -> None:
    """The axis is moved to the end, for which flattening has no effect."""
    data = site.input(0)
    rank = site.rank(data, "neither is the place of its axis")
    (axis,) = normalized([site.attribute("axis")], rank)
    if axis == rank - 1:
        site.set(axis=axis)
        return
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    op = site.op
    result = op.make(site.node.op_type, op.Transpose(data, perm=order), axis=rank - 1)
    site.replace(op.Transpose(result, perm=order))
