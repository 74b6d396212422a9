"""Softmax, LogSoftmax, Hardmax: up to opset 12 they operate on the input flattened to a matrix at the axis."""

from opbridge.onnx_model.opsets.inference import find_shape
from opbridge.onnx_model.opsets.site import Site, normalized
from opbridge.onnx_model.opsets.steps import up


@up("Softmax", "LogSoftmax", "Hardmax", version=13)
def one_axis(site: Site) -> None:
    """The input is flattened and the result reshaped, unless only the last axis is affected."""
    data, axis, op = site.input(0), site.attribute("axis"), site.op
    if axis == -1:
        site.set(axis=-1)
        return
    shape = None if data is None else find_shape(data)
    if shape is not None:
        (axis,) = normalized([axis], len(shape))
        if axis == len(shape) - 1:
            site.set(axis=axis)
            return
    result = op.make(site.node.op_type, op.Flatten(data, axis=axis), axis=1)
    site.replace(op.Reshape(result, op.Shape(data)))
