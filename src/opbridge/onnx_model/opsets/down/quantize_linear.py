"""QuantizeLinear: per axis since opset 13, 16-bit floats since 19, blocks since 21, a precision since 23."""

import onnx_ir as ir

from opbridge.onnx_model.opsets.quantization import is_per_tensor, quantize, zero_like
from opbridge.onnx_model.opsets.schemas import allowed_types, find_schema
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_FLOAT = ir.DataType.FLOAT


@down("QuantizeLinear", version=23)
def precision_of_the_input(site: Site) -> None:
    """With a separate precision, the node becomes a quotient in that type."""
    precision = site.attribute("precision")
    if precision and ir.DataType(precision) is not site.dtype(site.input(1)):
        site.replace(quantize(site, _result(site), ir.DataType(precision)))
    else:
        site.set(precision=None)


@down("QuantizeLinear", version=21)
def blocks_divided(site: Site) -> None:
    """For blocks and 16-bit integers, the node becomes a rounded quotient."""
    result, scale = _result(site), site.input(1)
    schema = find_schema("QuantizeLinear", site.target)
    takes = f"tensor({result.name.lower()})" in allowed_types(schema, schema.outputs[0].type_str)
    if not takes or (site.attribute("block_size") and not is_per_tensor(scale)):
        site.replace(quantize(site, result, site.dtype(scale)))
        return
    zero = site.input(2)
    if zero is None and result is not ir.DataType.UINT8 and scale is not None:
        zero = zero_like(site.op, scale, result)
    site.set_inputs(site.input(0), scale, zero)
    site.set(output_dtype=None, block_size=None)


@down("QuantizeLinear", version=19)
def computed_in_float(site: Site) -> None:
    """For 16-bit floats, the node is computed in float32."""
    data, scale, zero = site.input(0), site.input(1), site.input(2)
    site.set(saturate=None)
    if site.dtype(scale) is not _FLOAT or site.dtype(data) not in (_FLOAT, ir.DataType.INT32):
        site.set_inputs(site.op.cast(data, _FLOAT), site.op.cast(scale, _FLOAT), zero)


@down("QuantizeLinear", version=13)
def axis_divided(site: Site) -> None:
    """Per axis, the node becomes a rounded quotient."""
    if is_per_tensor(site.input(1)):
        site.set(axis=None)
    else:
        site.replace(quantize(site, _result(site), _FLOAT))


def _result(site: Site) -> ir.DataType:
    if site.input(2) is not None:
        return site.dtype(site.input(2))
    chosen = site.attribute("output_dtype")
    return ir.DataType(chosen) if chosen else ir.DataType.UINT8
