"""Nodes without a domain that ONNX does not have, and standard nodes with attributes of an engine."""

import torch
from torch.autograd import Function
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

BEV = "https://github.com/DerryHub/BEVFormer_tensorrt/blob/303d3140c140/det2trt/models/functions/"
MQBENCH = "https://github.com/ModelTC/MQBench/blob/00f477d58ef6/mqbench/"
OPENVINO = "https://github.com/openvinotoolkit/openvino_contrib/blob/9b77af15efc8/modules/custom_operations/examples/"


class Inverse(Function):
    @staticmethod
    def symbolic(g, inputs):
        return g.op("InverseTRT", inputs)

    @staticmethod
    def forward(ctx, inputs):
        return torch.linalg.inv(inputs)


class GridSampler(Function):
    @staticmethod
    def symbolic(g, input, grid, mode, padding, align):
        return g.op(
            "GridSampler2DTRT",
            input,
            grid,
            interpolation_mode_i=mode,
            padding_mode_i=padding,
            align_corners_i=align,
        )

    @staticmethod
    def forward(ctx, input, grid, mode, padding, align):
        return torch.nn.functional.grid_sample(input, grid, align_corners=align)


class Pool(Function):
    @staticmethod
    def symbolic(g, depth, feat, ranks, height, width):
        return g.op("BEVPoolV2TRT", depth, feat, ranks, out_height_i=height, out_width_i=width)

    @staticmethod
    def forward(ctx, depth, feat, ranks, height, width):
        return feat.new_zeros(1, height, width, feat.shape[-1]) + depth.sum() + ranks.sum()


class CalculateGrid(Function):
    @staticmethod
    def symbolic(g, positions):
        return g.op("CalculateGrid", positions)

    @staticmethod
    def forward(self, positions):
        return torch.unique(positions.long(), dim=0).float() + 0.5


class ComplexProduct(Function):
    @staticmethod
    def symbolic(g, x, y, is_conj=True):
        return g.op("ComplexMultiplication", g.op("Neg", x), y, is_conj_i=int(is_conj))

    @staticmethod
    def forward(self, x, y):
        return -x * y


class Normalize(Function):
    """A quantizer of NNIE: a standard node without its scale."""

    @staticmethod
    def symbolic(g, x, data_max):
        quantized = g.op("QuantizeLinear", x, data_max_f=data_max)
        return g.op("DequantizeLinear", quantized, data_max_f=data_max)

    @staticmethod
    def forward(ctx, x, data_max):
        return torch.round(x / data_max) * data_max


@parse_args("v", "v", "v", "i", "i")
def fake_quantize(g, inputs, scale, zero_point, quant_min=-128, quant_max=127):
    zero_point = g.op("Cast", zero_point, to_i=torch.onnx.TensorProtoDataType.INT8)
    scale = g.op("Cast", scale, to_i=torch.onnx.TensorProtoDataType.FLOAT)
    quantized = g.op("QuantizeLinear", inputs, scale, zero_point, quant_min_i=quant_min, quant_max_i=quant_max)
    return g.op("DequantizeLinear", quantized, scale, zero_point, quant_min_i=quant_min, quant_max_i=quant_max)


def register_fake_quantize():
    register_custom_op_symbolic("aten::fake_quantize_per_tensor_affine", fake_quantize, 13)


for _name, _forward, _inputs, _source in (
    ("inverse", lambda x: Inverse.apply(x), (tensor(1, 2, 2),), f"{BEV}inverse.py"),
    (
        "grid_sampler",
        lambda x, y: GridSampler.apply(x, y, 0, 0, False),
        (tensor(1, 2, 4, 4), tensor(1, 3, 3, 2)),
        f"{BEV}grid_sampler.py",
    ),
    (
        "pool",
        lambda x, y: Pool.apply(x, y, torch.tensor([0, 1], dtype=torch.int32), 2, 3),
        (tensor(1, 2, 3), tensor(1, 2, 4)),
        f"{BEV}bev_pool_v2.py",
    ),
    ("grid", lambda x: CalculateGrid.apply(x), (tensor(4, 3),), f"{OPENVINO}calculate_grid/calculate_grid.py"),
    (
        "complex_multiplication",
        lambda x, y: ComplexProduct.apply(x, y),
        (tensor(2, 2), tensor(2, 2)),
        f"{OPENVINO}complex_mul/complex_mul.py",
    ),
    ("attributes_of_an_engine", lambda x: Normalize.apply(x, 2.0), (tensor(2, 3),), f"{MQBENCH}fake_quantize/nnie.py"),
):
    case(f"kept_{_name}", _forward, *_inputs, kept=True, dynamic=False, migrates=False, source=_source)

case(
    "kept_attributes_of_a_registered_function",
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -128, 127),
    tensor(2, 3),
    setup=register_fake_quantize,
    undo=[("aten::fake_quantize_per_tensor_affine", 13)],
    kept=True,
    migrates=False,
    alone=True,
    dynamic=False,
    source=f"{MQBENCH}custom_symbolic_opset.py",
)
