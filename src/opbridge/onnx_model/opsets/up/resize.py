"""Resize and its predecessor Upsample, up to opset 13."""

import numpy as np

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import up


@up("Upsample", version=10)
def renamed(site: Site) -> None:
    """Upsample is called Resize."""
    site.replace(site.op.Resize(site.input(0), site.input(1), mode=site.attribute("mode")))


@up("Resize", version=11)
def said_how(site: Site) -> None:
    """The coordinate transformation and rounding, which were fixed in opset 10, become attributes."""
    data, scales, mode = site.input(0), site.input(1), site.attribute("mode")
    values = known(scales)
    if mode == "nearest" and not (values is not None and (values >= 1).all()):
        raise CannotExpress("opset 10 does not define the rounding of a smaller result")
    site.set_inputs(data, site.op.constant(np.zeros(0, dtype=np.float32)), scales)
    site.set(coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@up("Resize", version=13)
def inputs_left_out(site: Site) -> None:
    """Empty inputs are removed."""
    if site.attribute("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        raise CannotExpress("coordinate_transformation_mode='tf_half_pixel_for_nn' was removed in opset 13")
    given = [site.input(position) for position in range(4)]
    for position in (1, 2):
        value = given[position]
        array = known(value)
        shape = None if value is None else value.shape
        if (array is not None and not array.size) or (shape is not None and list(shape) == [0]):
            given[position] = None
    site.set_inputs(*given)
