"""LpPool: dilations and ceil_mode since opset 18."""

from opbridge.onnx_model.opsets.pooling import pool_sum
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("LpPool", version=18)
def convolved(site: Site) -> None:
    """With dilations or ceil_mode, the node becomes a convolution of powers with ones."""
    dilations = site.attribute("dilations")
    if not site.attribute("ceil_mode") and (not dilations or set(dilations) == {1}):
        site.set(dilations=None, ceil_mode=None)
        return
    data, op, power = site.input(0), site.op, float(site.attribute("p"))
    assert data is not None
    powers = op.Pow(op.Abs(data), power)
    site.replace(op.Pow(pool_sum(site, powers), 1.0 / power))
