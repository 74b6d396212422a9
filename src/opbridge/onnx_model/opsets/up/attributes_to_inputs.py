"""Attributes that became inputs: axes, pads, sizes and bounds."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import up


@up("Squeeze", "Unsqueeze", "ReduceSum", version=13)
@up(
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
    version=18,
)
def axes_input(site: Site) -> None:
    """The axes become an input."""
    axes = site.attribute("axes")
    site.set(axes=None)
    if axes:
        site.set_inputs(site.input(0), _integers(site, axes))


@up("Split", version=13)
def sizes_input(site: Site) -> None:
    """The sizes become an input."""
    sizes = site.attribute("split")
    site.set(split=None)
    if sizes:
        site.set_inputs(site.input(0), _integers(site, sizes))


@up("Split", version=18)
def number_of_outputs(site: Site) -> None:
    """Without sizes, the number of outputs becomes an attribute."""
    if site.input(1) is None:
        site.set(num_outputs=len(site.node.outputs))


@up("Slice", version=10)
def bounds_input(site: Site) -> None:
    """The bounds and axes become inputs."""
    names = ("starts", "ends", "axes")
    values = [site.attribute(name) for name in names]
    site.set(**dict.fromkeys(names))
    site.set_inputs(site.input(0), *(None if value is None else _integers(site, value) for value in values))


@up("TopK", version=10)
def number_input(site: Site) -> None:
    """The number of elements becomes an input."""
    number = site.attribute("k")
    site.set(k=None)
    site.set_inputs(site.input(0), _integers(site, [number]))


@up("Clip", version=11)
def limits_input(site: Site) -> None:
    """The limits become inputs."""
    data = site.input(0)
    site.dtype(data)
    given = [site.op.like(site.attribute(name), data) if name in site.node.attributes else None
             for name in ("min", "max")]  # fmt: skip
    site.set(min=None, max=None)
    site.set_inputs(data, *given)


@up("Pad", version=11)
def pads_input(site: Site) -> None:
    """The pads and the value become inputs."""
    data = site.input(0)
    site.dtype(data)
    pads, value = site.attribute("pads"), site.attribute("value")
    site.set(pads=None, value=None)
    site.set_inputs(data, _integers(site, pads), site.op.like(value, data) if value else None)


@up("Dropout", version=12)
def ratio_input(site: Site) -> None:
    """The ratio becomes an input."""
    ratio = site.attribute("ratio")
    site.set(ratio=None)
    site.set_inputs(site.input(0), site.op.constant(np.array(ratio, dtype=np.float32)))


@up("Upsample", version=9)
def scales_input(site: Site) -> None:
    """The scales become an input."""
    scales = site.attribute("scales")
    site.set(scales=None)
    site.set_inputs(site.input(0), site.op.constant(np.array(scales, dtype=np.float32)))


@up("DFT", version=20)
def axis_input(site: Site) -> None:
    """The axis becomes an input with another default."""
    axis = site.attribute("axis")
    site.set(axis=None)
    site.set_inputs(site.input(0), site.input(1), site.op.constant(np.array(axis)))


def _integers(site: Site, values: list[int]) -> ir.Value:
    result: ir.Value = site.op.constant(np.array(values, dtype=np.int64))
    return result
