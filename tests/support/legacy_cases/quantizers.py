"""Quantizers: brevitas, ModelOpt and pytorch-quantization, MQBench, NNCF."""

import torch
from torch.autograd import Function
from torch.onnx import register_custom_op_symbolic, symbolic_helper, symbolic_opset9

from legacy_cases.table import case, tensor

BREVITAS = "https://github.com/Xilinx/brevitas/blob/b106358c4169/src/brevitas/export/onnx/"
MODELOPT = "https://github.com/NVIDIA/TensorRT-Model-Optimizer/blob/5a4242faf414/modelopt/torch/quantization/"
MQBENCH = "https://github.com/ModelTC/MQBench/blob/00f477d58ef6/mqbench/"
NNCF = "https://github.com/openvinotoolkit/nncf/blob/ef8e1dbd826a/src/nncf/torch/quantization/quantize_functions.py"

DOMAIN_STRING = "onnx.brevitas"
SCALE, ZERO = torch.tensor(0.25), torch.tensor(0.0)


class BipolarQuant(Function):
    @staticmethod
    def symbolic(g, x, scale, zero_point, bit_width, narrow_range, signed, rounding_mode):
        ret = g.op(f"{DOMAIN_STRING}::BipolarQuant", x, scale)
        ret.setType(x.type())
        return ret

    @staticmethod
    def forward(ctx, x, scale, zero_point, bit_width, narrow_range, signed, rounding_mode):
        return torch.where(x < 0, -scale, scale)


class Quant(Function):
    @staticmethod
    def symbolic(g, x, scale, zero_point, bit_width, narrow_range, signed, rounding_mode):
        ret = g.op(
            f"{DOMAIN_STRING}::Quant",
            x,
            scale,
            zero_point,
            bit_width,
            rounding_mode_s=rounding_mode,
            signed_i=int(signed),
            narrow_i=int(narrow_range),
        )
        ret.setType(x.type())
        return ret

    @staticmethod
    def forward(ctx, x, scale, zero_point, bit_width, narrow_range, signed, rounding_mode):
        limit = 2.0 ** (bit_width - 1) - 1
        return torch.clamp(torch.round(x / scale + zero_point), -limit, limit) * scale


for _name, _quantize in (
    ("bipolar", lambda x: BipolarQuant.apply(x, SCALE, ZERO, torch.tensor(8.0), True, True, "ROUND")),
    ("integer", lambda x: Quant.apply(x, SCALE, ZERO, torch.tensor(8.0), True, True, "ROUND")),
):
    case(
        f"brevitas_{_name}",
        _quantize,
        tensor(2, 3),
        domains=("onnx.brevitas",),
        source=f"{BREVITAS}qonnx/function.py",
    )


class FloatQuant(Function):
    @staticmethod
    def symbolic(g, x, scale, exponent, mantissa, bias, has_inf, saturating, rounding_mode, max_val):
        ret = g.op(
            f"{DOMAIN_STRING}::FloatQuant",
            x,
            scale,
            exponent,
            mantissa,
            bias,
            max_val,
            has_inf_i=int(has_inf),
            saturation_i=int(saturating),
            rounding_mode_s=rounding_mode,
        )
        ret.setType(x.type())
        return ret

    @staticmethod
    def forward(ctx, x, scale, exponent, mantissa, bias, has_inf, saturating, rounding_mode, max_val):
        return torch.round(x / scale) * scale


case(
    "brevitas_float",
    lambda x: FloatQuant.apply(
        x, SCALE, torch.tensor(4.0), torch.tensor(3.0), torch.tensor(7.0), False, True, "ROUND", torch.tensor(448.0)
    ),
    tensor(2, 3),
    domains=("onnx.brevitas",),
    source=f"{BREVITAS}qonnx/function.py",
)

AXIS_OPSET = 13


class Dequantize(Function):
    @staticmethod
    def symbolic(g, x, scale, zero_point, axis):
        if axis is not None and g.opset >= AXIS_OPSET:
            return g.op("DequantizeLinear", x, scale, zero_point, axis_i=axis)
        return g.op("DequantizeLinear", x, scale, zero_point)

    @staticmethod
    def forward(ctx, int_x, scale, zero_point, axis):
        return int_x.float()


DATATYPES = {torch.int8: torch.onnx.TensorProtoDataType.INT8, torch.int32: torch.onnx.TensorProtoDataType.INT32}


class CastTo(Function):
    @staticmethod
    def symbolic(g, x, dtype):
        return g.op("Cast", x, to_i=DATATYPES[dtype])

    @staticmethod
    def forward(ctx, x, dtype):
        return x.to(dtype)


class IntClip(Function):
    @staticmethod
    def symbolic(g, int_x, low, high):
        return g.op("Clip", int_x, low, high)

    @staticmethod
    def forward(ctx, int_x, low, high):
        return int_x.clamp(-100, 100)


case(
    "brevitas_cast_and_clip",
    lambda x: IntClip.apply(
        CastTo.apply(x, torch.int8), torch.tensor(-100, dtype=torch.int8), torch.tensor(100, dtype=torch.int8)
    ),
    tensor(2, 3),
    runs=True,
    source=f"{BREVITAS}standard/function.py",
)
SCALES = torch.tensor(0.5), torch.full((3,), 0.5)
ZEROS = torch.zeros((), dtype=torch.int8), torch.zeros(3, dtype=torch.int8)

for _name, _axis, _scale, _zero in zip(("per_tensor", "per_channel"), (None, 1), SCALES, ZEROS, strict=True):
    case(
        f"brevitas_dequantize_{_name}",
        lambda x, axis=_axis, scale=_scale, zero=_zero: Dequantize.apply(
            CastTo.apply(x, torch.int8), scale, zero, axis
        ),
        tensor(2, 3),
        source=f"{BREVITAS}standard/function.py",
    )


class DynamicQuantize(Function):
    @staticmethod
    def symbolic(g, x, dtype):
        x, scale, zero_point = g.op("DynamicQuantizeLinear", x, outputs=3)
        return x, scale, zero_point

    @staticmethod
    def forward(ctx, x, dtype):
        scale = x.new_ones(())
        return x.to(torch.uint8), scale, scale.to(torch.uint8)


case(
    "brevitas_dynamic",
    lambda x: DynamicQuantize.apply(x, torch.uint8),
    tensor(2, 3),
    source=f"{BREVITAS}standard/function.py",
)


class TensorQuant(Function):
    @staticmethod
    @symbolic_helper.parse_args("v", "t", "i", "b", "b")
    def symbolic(g, inputs, amax, num_bits=8, unsigned=False, narrow_range=True):
        maximum = (2 << (num_bits - 1 + int(unsigned) - 1)) - 1
        zero = g.op("Constant", value_t=torch.zeros_like(amax, dtype=torch.int8))
        scale = g.op("Constant", value_t=amax / maximum)
        quantized = g.op("QuantizeLinear", inputs, scale, zero)
        return g.op("DequantizeLinear", quantized, scale, zero)

    @staticmethod
    def forward(ctx, inputs, amax, num_bits=8, unsigned=False, narrow_range=True):
        scale = amax / 127
        return torch.clamp(torch.round(inputs / scale), -127, 127) * scale


case(
    "modelopt_constant_amax",
    lambda x: TensorQuant.apply(x, torch.tensor(2.0), 8, False, True),
    tensor(2, 3),
    migrates=False,
    source=f"{MODELOPT}tensor_quant.py",
)


class FP8(Function):
    @staticmethod
    def symbolic(g, inputs, amax, dtype):
        scale = g.op("Constant", value_t=torch.tensor(amax / 448.0, dtype=torch.float32))
        shape = symbolic_helper._get_tensor_sizes(inputs)
        quantized = g.op("trt::TRT_FP8QuantizeLinear", inputs, scale).setType(
            inputs.type().with_dtype(torch.uint8).with_sizes(shape)
        )
        return g.op("trt::TRT_FP8DequantizeLinear", quantized, scale).setType(
            inputs.type().with_dtype(torch.float32).with_sizes(shape)
        )

    @staticmethod
    def forward(ctx, inputs, amax, dtype):
        return inputs.to(torch.float8_e4m3fn).to(inputs.dtype)


class FP4(Function):
    @staticmethod
    def symbolic(g, inputs, block_size, scale):
        return g.op("trt::TRT_FP4QDQ", inputs, block_size_i=block_size)

    @staticmethod
    def forward(ctx, inputs, block_size, scale):
        return inputs * 1.0


case(
    "modelopt_fp8",
    lambda x: FP8.apply(x, 448.0, "Float"),
    tensor(2, 3),
    domains=("trt",),
    migrates=False,
    source=f"{MODELOPT}export_onnx.py",
)
case(
    "modelopt_fp4",
    lambda x: FP4.apply(x, 16, None),
    tensor(2, 16),
    domains=("trt",),
    source=f"{MODELOPT}export_onnx.py",
)


class LearnedScale(Function):
    @staticmethod
    def symbolic(g, x, scale, zero_point, quant_min, quant_max, mth):
        kind = torch.onnx.TensorProtoDataType.UINT8 if quant_min == 0 else torch.onnx.TensorProtoDataType.INT8
        zero_point = g.op("Cast", zero_point, to_i=kind)
        quantized = g.op("QuantizeLinear", x, scale, zero_point)
        if quant_min == 0 and quant_max == 127:
            high = g.op("Constant", value_t=torch.tensor(127, dtype=torch.uint8))
            quantized = g.op("Clip", quantized, symbolic_opset9.unused(g), high)
        return g.op("DequantizeLinear", quantized, scale, zero_point)

    @staticmethod
    def forward(ctx, x, scale, zero_point, quant_min, quant_max, mth):
        return torch.clamp(torch.round(x / scale), quant_min, quant_max) * scale


for _low, _high in ((0, 255), (0, 127), (-128, 127)):
    case(
        f"mqbench_from_{_low}_to_{_high}".replace("-", "minus_"),
        lambda x, low=_low, high=_high: LearnedScale.apply(x, torch.tensor(0.5), torch.tensor(0), low, high, "mth"),
        tensor(2, 3),
        source=f"{MQBENCH}fake_quantize/tqt.py",
    )


@symbolic_helper.parse_args("v", "v", "v", "i", "i")
def fake_quantize(g, inputs, scale, zero_point, quant_min=-128, quant_max=127):
    zero_point = g.op("Cast", zero_point, to_i=torch.onnx.TensorProtoDataType.INT8)
    scale = g.op("Cast", scale, to_i=torch.onnx.TensorProtoDataType.FLOAT)
    return g.op("DequantizeLinear", g.op("QuantizeLinear", inputs, scale, zero_point), scale, zero_point)


def register_fake_quantize():
    register_custom_op_symbolic("aten::fake_quantize_per_tensor_affine", fake_quantize, 13)


case(
    "mqbench_registered",
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -128, 127),
    tensor(2, 3),
    setup=register_fake_quantize,
    undo=[("aten::fake_quantize_per_tensor_affine", 13)],
    dynamic=False,  # torch has no shape function for it
    alone=True,
    source=f"{MQBENCH}custom_symbolic_opset.py",
)


def add_domain(name):
    return "org.openvinotoolkit::" + name


class FakeQuantize(Function):
    @staticmethod
    def symbolic(g, input_, levels, low, high, output_low, output_high):
        output = g.op(add_domain("FakeQuantize"), input_, low, high, output_low, output_high, levels_i=levels)
        output.setType(input_.type())
        return output

    @staticmethod
    def forward(ctx, input_, levels, low, high, output_low, output_high):
        return torch.clamp(input_, -1, 1)


case(
    "nncf_fake_quantize",
    lambda x: FakeQuantize.apply(
        x, 256, torch.tensor([-1.0]), torch.tensor([1.0]), torch.tensor([-1.0]), torch.tensor([1.0])
    ),
    tensor(2, 3),
    domains=("org.openvinotoolkit",),
    source=NNCF,
)


class QuantDequant(Function):
    @staticmethod
    def symbolic(g, input_, scale, zero_point, axis):
        quantized = g.op("QuantizeLinear", input_, scale, zero_point, axis_i=axis)
        return g.op("DequantizeLinear", quantized, scale, zero_point, axis_i=axis)

    @staticmethod
    def forward(ctx, input_, scale, zero_point, axis):
        return torch.clone(input_)


case(
    "nncf_quantize_and_dequantize",
    lambda x: QuantDequant.apply(x, torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0, 1, 2], dtype=torch.int8), 1),
    tensor(2, 3),
    source=NNCF,
)
