"""Renamed operators and modes, and changed defaults."""

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import up

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@up("Scatter", version=11)
def scatter_elements(site: Site) -> None:
    """Scatter is called ScatterElements."""
    site.replace(site.op.ScatterElements(*site.node.inputs, axis=site.attribute("axis")))


@up("GridSample", version=20)
def modes(site: Site) -> None:
    """The modes have other names."""
    mode = site.attribute("mode")
    site.set(mode=_MODES.get(mode, mode))


@up("RoiAlign", version=16)
def without_a_shift(site: Site) -> None:
    """The coordinate transformation without a shift, which is no longer the default, becomes explicit."""
    site.set(coordinate_transformation_mode="output_half_pixel")
