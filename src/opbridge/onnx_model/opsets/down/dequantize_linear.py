"""DequantizeLinear: per axis since opset 13, 16-bit floats since 19, blocks since 21, an output type since 23."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.quantization import dequantize, is_per_tensor
from opbridge.onnx_model.opsets.schemas import allowed_types, find_schema, type_name
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down


@down("DequantizeLinear", version=23)
def type_of_the_scale(site: Site) -> None:
    """The scale is cast to the output type."""
    chosen = site.attribute("output_dtype")
    site.set(output_dtype=None)
    scale = site.input(1)
    if chosen and ir.DataType(chosen) is not site.dtype(scale):
        site.set_inputs(site.input(0), site.op.cast(scale, ir.DataType(chosen)), site.input(2))


@down("DequantizeLinear", version=21)
def blocks_multiplied(site: Site) -> None:
    """For blocks and 16-bit integers, the node becomes a difference and a product."""
    size = site.attribute("block_size")
    scale, data = site.input(1), site.input(0)
    schema = find_schema("DequantizeLinear", site.target)
    known = data is not None and type_name(data.type) in allowed_types(schema, schema.inputs[0].type_str)
    if (size and not is_per_tensor(scale)) or not known:
        site.replace(dequantize(site, site.dtype(scale)))
    else:
        site.set(block_size=None)


@down("DequantizeLinear", version=19)
def scale_in_float(site: Site) -> None:
    """For 16-bit floats, the node is computed in float32."""
    data, scale, zero = site.input(0), site.input(1), site.input(2)
    dtype, op = site.dtype(scale), site.op
    if dtype is not ir.DataType.FLOAT:
        site.replace(op.cast(site.again(data, op.cast(scale, ir.DataType.FLOAT), zero), dtype))


@down("DequantizeLinear", version=13)
def axis_multiplied(site: Site) -> None:
    """Per axis, the node becomes a difference and a product."""
    if is_per_tensor(site.input(1)):
        site.set(axis=None)
    else:
        site.replace(dequantize(site, ir.DataType.FLOAT))
