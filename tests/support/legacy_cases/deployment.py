"""Deployment tools: MMDeploy, onnx2torch, OpenVINO's custom operations, efficient-transformers."""

import torch
from torch.autograd import Function
from torch.onnx import register_custom_op_symbolic, symbolic_helper
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

MMDEPLOY = "https://github.com/open-mmlab/mmdeploy/blob/3f8604bd72e8/mmdeploy/"
ONNX2TORCH = "https://github.com/ENOT-AutoDL/onnx2torch/blob/369412ad62c8/onnx2torch/utils/custom_export_to_onnx.py"
OPENVINO = "https://github.com/openvinotoolkit/openvino_contrib/blob/9b77af15efc8/modules/custom_operations/examples/"
QEFF = "https://github.com/quic/efficient-transformers/blob/ebf55e8159c8/QEfficient/customop/"


@parse_args("v", "v", "i", "i", "i")
def grid_sampler(g, input, grid, mode, padding, align):
    return g.op(
        "mmdeploy::grid_sampler",
        input,
        grid,
        interpolation_mode_i=mode,
        padding_mode_i=padding,
        align_corners_i=align,
    )


@parse_args("v", "s")
def gelu(g, x, approximate):
    half = g.op("Constant", value_t=torch.tensor(0.5))
    erf = g.op("Erf", g.op("Mul", x, g.op("Constant", value_t=torch.tensor(0.7071067811865475))))
    return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.op("Constant", value_t=torch.tensor(1.0)))), half)


@parse_args("v")
def hardsigmoid(g, x):
    return g.op("HardSigmoid", x, alpha_f=1 / 6, beta_f=0.5)


@parse_args("v", "is", "v", "v", "f", "b")
def layer_norm(g, x, shape, weight, bias, eps, cudnn):
    axes = [-i for i in range(len(shape), 0, -1)]
    mean = g.op("ReduceMean", x, g.op("Constant", value_t=torch.tensor(axes)))
    centered = g.op("Sub", x, mean)
    squares = g.op("Pow", centered, g.op("Constant", value_t=torch.tensor(2.0)))
    variance = g.op("ReduceMean", squares, g.op("Constant", value_t=torch.tensor(axes)))
    shifted = g.op("Add", variance, g.op("Constant", value_t=torch.tensor(eps, dtype=torch.float32)))
    normal = g.op("Div", centered, g.op("Sqrt", shifted))
    return g.op("Add", g.op("Mul", normal, weight), bias)


@parse_args("v", "v", "v")
def linear(g, x, weight, bias):
    return g.op("Gemm", x, weight, bias, transB_i=1, alpha_f=1.0, beta_f=1.0)


@parse_args("v", "is", "is")
def roll(g, x, shifts, dims):
    for shift, dim in zip(shifts, dims, strict=True):
        x = g.op("mmdeploy::Roll", x, shift_i=shift, dim_i=dim)
    return x


@parse_args("v", "is")
def adaptive_avg_pool2d(g, x, size):
    return g.op("mmdeploy::AdaptiveAvgPool2d", x, output_size_i=size)


def register_grid_sampler():
    register_custom_op_symbolic("aten::grid_sampler", grid_sampler, 16)


def register_gelu():
    register_custom_op_symbolic("aten::gelu", gelu, 11)


def register_hardsigmoid():
    register_custom_op_symbolic("aten::hardsigmoid", hardsigmoid, 11)


def register_layer_norm():
    register_custom_op_symbolic("aten::layer_norm", layer_norm, 17)


def register_linear():
    register_custom_op_symbolic("aten::linear", linear, 11)


def register_roll():
    register_custom_op_symbolic("aten::roll", roll, 11)


def register_adaptive_avg_pool2d():
    register_custom_op_symbolic("aten::adaptive_avg_pool2d", adaptive_avg_pool2d, 11)


SCALE, SHIFT, WEIGHT, BIAS = torch.ones(3), torch.zeros(3), torch.ones(2, 3), torch.zeros(2)

for _name, _opset, _register, _forward, _inputs, _fields in (
    (
        "grid_sampler", 16, register_grid_sampler,
        lambda x, y: torch.nn.functional.grid_sample(x, y, "nearest", "border", True),
        (tensor(1, 2, 4, 4), tensor(1, 3, 3, 2)), {"domains": ("mmdeploy",)},
    ),
    ("gelu", 11, register_gelu, lambda x: torch.nn.functional.gelu(x), (tensor(2, 3),), {"runs": True}),
    (
        "hardsigmoid", 11, register_hardsigmoid, lambda x: torch.nn.functional.hardsigmoid(x), (tensor(2, 3),),
        {"runs": True},
    ),
    (
        "layer_norm", 17, register_layer_norm,
        lambda x: torch.nn.functional.layer_norm(x, (3,), SCALE, SHIFT), (tensor(2, 3),),
        {"runs": True},
    ),
    (
        "linear", 11, register_linear, lambda x: torch.nn.functional.linear(x, WEIGHT, BIAS),
        (tensor(2, 3),), {"runs": True},
    ),
    ("roll", 11, register_roll, lambda x: torch.roll(x, (1, 2), (0, 1)), (tensor(2, 3),), {"domains": ("mmdeploy",)}),
    (
        "adaptive_avg_pool2d", 11, register_adaptive_avg_pool2d,
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (2, 3)), (tensor(1, 2, 4, 6),), {"domains": ("mmdeploy",)},
    ),
):  # fmt: skip
    case(
        f"mmdeploy_{_name}",
        _forward,
        *_inputs,
        setup=_register,
        undo=[(f"aten::{_name}", _opset)],
        dynamic=False,
        alone=True,
        source=f"{MMDEPLOY}pytorch/symbolics/{_name.replace('avg_pool2d', 'pool')}.py",
        **_fields,
    )

ELEMENT_TYPES = {torch.float32: torch.onnx.TensorProtoDataType.FLOAT}


class Mark(Function):
    @staticmethod
    def symbolic(g, x, dtype, shape, func, func_id, type, name, id, attrs):
        return g.op(
            "mmdeploy::Mark",
            x,
            dtype_i=ELEMENT_TYPES[dtype],
            shape_i=shape,
            func_s=func,
            func_id_i=func_id,
            type_s=type,
            name_s=name,
            id_i=id,
            **attrs,
        )

    @staticmethod
    def forward(ctx, x, *args):
        return x


case(
    "mmdeploy_mark_of_a_function",
    lambda x: Mark.apply(x.exp(), x.dtype, [2, 3], "detector", 0, "input", "x", 1, {"level_i": 2, "kind_s": "box"}) + 1,
    tensor(2, 3),
    dynamic=False,
    domains=("mmdeploy",),
    migrates=False,
    source=f"{MMDEPLOY}core/optimizers/function_marker.py",
)


class BatchedNMS(Function):
    @staticmethod
    def forward(ctx, boxes, scores, classes, topk, threshold, return_index=False):
        batch = boxes.shape[0]
        found = boxes.new_zeros(batch, topk, 5), scores.new_zeros(batch, topk, dtype=torch.int64)
        return (*found, scores.new_zeros(batch, topk, dtype=torch.int64)) if return_index else found

    @staticmethod
    def symbolic(g, boxes, scores, classes, topk, threshold, return_index=False):
        return g.op(
            "mmdeploy::TRTBatchedNMS",
            boxes,
            scores,
            num_classes_i=classes,
            keep_topk_i=topk,
            iou_threshold_f=threshold,
            is_normalized_i=False,
            return_index_i=return_index,
            outputs=3 if return_index else 2,
        )


for _index in (False, True):
    case(
        f"mmdeploy_batched_nms_{'with' if _index else 'without'}_index",
        lambda x, y, index=_index: BatchedNMS.apply(x, y, 2, 3, 0.5, index),
        tensor(1, 5, 4),
        tensor(1, 5, 2),
        dynamic=False,
        domains=("mmdeploy",),
        migrates=False,
        source=f"{MMDEPLOY}mmcv/ops/nms.py",
    )


class StandardNMS(Function):
    @staticmethod
    def forward(ctx, boxes, scores, limit, iou_threshold, score_threshold):
        return scores.new_zeros(1, 3, dtype=torch.int64)

    @staticmethod
    def symbolic(g, boxes, scores, limit, iou_threshold, score_threshold):
        if not symbolic_helper._is_value(limit):
            limit = g.op("Constant", value_t=torch.tensor(limit, dtype=torch.long))
        if not symbolic_helper._is_value(iou_threshold):
            iou_threshold = g.op("Constant", value_t=torch.tensor([iou_threshold], dtype=torch.float))
        if not symbolic_helper._is_value(score_threshold):
            score_threshold = g.op("Constant", value_t=torch.tensor([score_threshold], dtype=torch.float))
        return g.op("NonMaxSuppression", boxes, scores, limit, iou_threshold, score_threshold)


case(
    "mmdeploy_nms_of_numbers",
    lambda x, y: StandardNMS.apply(x, y, 10, 0.5, 0.05),
    tensor(1, 5, 4),
    tensor(1, 2, 5),
    dynamic=False,
    source=f"{MMDEPLOY}mmcv/ops/nms.py",
)


class Exported(Function):
    """The results are computed before the call, and the operator is an argument."""

    _next = None

    @classmethod
    def with_output(cls, output, *args):
        Exported._next = output
        return cls.apply(*args)

    @staticmethod
    def forward(ctx, *args):
        return Exported._next

    @staticmethod
    def symbolic(g, *args):
        raise NotImplementedError


class ExportedPad(Exported):
    @staticmethod
    def symbolic(g, x, pads, attributes):
        return g.op("Pad", x, pads, **attributes)


def _padded(x):
    output = torch.nn.functional.pad(x, (1, 2))
    return ExportedPad.with_output(output, x, torch.tensor([0, 1, 0, 2]), {"mode_s": "constant"})


case(
    "onnx2torch_output_of_before",
    _padded,
    tensor(2, 3),
    oracle=False,
    graph=("::Pad[0]{}(input 0, ('int64', (4,), (0, 1, 0, 2)))",),
    runs=True,
    dynamic=False,
    migrates=False,
    source=ONNX2TORCH,
)


class ComplexMultiplication(Function):
    @staticmethod
    def symbolic(g, x, y, is_conj=True):
        return g.op("extension::ComplexMultiplication", x, y, is_conj_i=int(is_conj))

    @staticmethod
    def forward(self, x, y):
        real = x[..., 0] * y[..., 0] - x[..., 1] * y[..., 1]
        imaginary = x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0]
        return torch.cat([real.unsqueeze(dim=-1), imaginary.unsqueeze(dim=-1)], dim=-1)


class FFT(Function):
    @staticmethod
    def symbolic(g, x, inverse, centered, dims):
        dims = g.op("Constant", value_t=torch.tensor(dims))
        return g.op("extension::FFT", x, dims, inverse_i=inverse, centered_i=centered)

    @staticmethod
    def forward(self, x, inverse, centered, dims):
        return x * 2.0


class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.ones(2, 3))

    def origin_forward(self, x):
        return x @ self.kernel.T


SPARSE = Sparse()


class SparseConv(Function):
    @staticmethod
    def symbolic(g, cls, x):
        return g.op("extension::SparseConv", x, g.op("Constant", value_t=cls.state_dict()["kernel"]))

    @staticmethod
    def forward(self, cls, x):
        return cls.origin_forward(x)


case(
    "openvino_complex_multiplication",
    lambda x, y: ComplexMultiplication.apply(x, y),
    tensor(3, 2),
    tensor(3, 2),
    domains=("extension",),
    source=f"{OPENVINO}complex_mul/complex_mul.py",
)
case(
    "openvino_fft",
    lambda x: FFT.apply(x, False, True, [1, 2]),
    tensor(2, 3, 4, 2),
    domains=("extension",),
    source=f"{OPENVINO}fft/fft.py",
)
case(
    "openvino_sparse_conv_of_a_module",
    lambda x: SparseConv.apply(SPARSE, x),
    tensor(2, 3),
    domains=("extension",),
    source=f"{OPENVINO}sparse_conv/sparse_conv.py",
)


class RMSNorm(Function):
    @staticmethod
    def forward(hidden, weight, epsilon):
        return weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + epsilon)

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        pass

    @staticmethod
    def symbolic(g: torch.Graph, hidden: torch.Value, weight: torch.Value, epsilon: torch.Value) -> torch.Value:
        return g.op("com.qti.aisw.onnx::CustomRMSNorm", hidden, weight, epsilon_f=epsilon).setTypeAs(hidden)


class ContextScatter(Function):
    @staticmethod
    def forward(data, positions, updates):
        data = data.clone()
        data[torch.arange(data.shape[0]).view(-1, 1), positions] = updates
        return data

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        pass

    @staticmethod
    def symbolic(g, data, positions, updates):
        return g.op("com.qualcomm.cloud::CtxScatter", data, positions, updates).setTypeAs(data)


case(
    "qeff_rms_norm",
    lambda x: RMSNorm.apply(x, torch.tensor([1.0, 2.0, 3.0]), 1e-5),
    tensor(2, 3),
    domains=("com.qti.aisw.onnx",),
    source=f"{QEFF}rms_norm.py",
)
case(
    "qeff_scatter_of_a_cache",
    lambda x, y: ContextScatter.apply(x, torch.tensor([[0, 1], [2, 1]]), y),
    tensor(2, 4, 3),
    tensor(2, 2, 3),
    dynamic=False,
    domains=("com.qualcomm.cloud",),
    source=f"{QEFF}ctx_scatter_gather.py",
)
