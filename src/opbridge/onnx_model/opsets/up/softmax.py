"""Softmax, LogSoftmax, Hardmax: up to opset 12 they operate on the input flattened to a matrix at the axis."""

from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import up


@up("Softmax", "LogSoftmax", "Hardmax", version=13)
def one_axis(site: Site) -> None:
    """The input is flattened and the result reshaped, unless only the last axis is affected."""
    data, axis, op = site.input(0), site.attribute("axis"), site.op
    if axis == -1:
        site.set(axis=-1)
        return
    rank = site.rank(data, "neither is what its axis means")
    (place,) = normalized([axis], rank)
    if place == rank - 1:
        site.set(axis=place)
        return
    result = op.make(site.node.op_type, op.Flatten(data, axis=place), axis=1)
    site.replace(op.Reshape(result, op.Shape(data)))
