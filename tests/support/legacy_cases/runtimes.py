"""Extensions of runtimes: ONNX Runtime's contrib operators, TensorRT plugins of DL4AGX, Qualcomm's and Sony's tools."""

import functools
import math

import torch
from torch.autograd import Function
from torch.onnx import is_in_onnx_export, register_custom_op_symbolic, symbolic_helper
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

EXTENSIONS = "https://github.com/microsoft/onnxruntime-extensions/blob/319f8d2c02c4/"
CONTRIB = (
    "https://github.com/microsoft/onnxruntime/blob/08c23e065b89/onnxruntime/python/tools/pytorch_export_contrib_ops.py"
)
TRAINING = (
    "https://github.com/microsoft/onnxruntime/blob/00d9071bf8d1/orttraining/orttraining/python/training/ortmodule/"
    "_custom_op_symbolic_registry.py"
)
DL4AGX = "https://github.com/NVIDIA/DL4AGX/blob/482b3f53e7b7/AV-Solutions/"
QEFF = "https://github.com/quic/efficient-transformers/blob/ebf55e8159c8/QEfficient/customop/"
AIMET = "https://github.com/quic/aimet/blob/c51b284b785f/TrainingExtensions/torch/"
TRANSFORMER_ENGINE = (
    "https://github.com/NVIDIA/TransformerEngine/blob/05b1d41be38a/transformer_engine/pytorch/te_onnx_extensions.py"
)
SONY = (
    "https://github.com/sony/custom_layers/blob/b7ae55b0f37b/sony_custom_layers/pytorch/box_decode/box_decode_onnx.py"
)
CRYPTEN = "https://github.com/facebookresearch/CrypTen/blob/775868a02d6d/crypten/nn/onnx_converter.py"
DEEPSPEED = "https://github.com/microsoft/DeepSpeed/blob/38327e07f6cd/deepspeed/runtime/domino/transformer.py"


class OnnxOpFunction(Function):
    @classmethod
    def forward(cls, ctx, *args):
        return cls.function(*args)

    @classmethod
    def symbolic(cls, g, *args):
        return g.op(cls.op_type, *args)


def create_op_function(op_type, function):
    made = type(f"{op_type}_1", (OnnxOpFunction,), {"op_type": op_type, "function": staticmethod(function)})
    return made.apply


onnx_where = create_op_function("Where", torch.where)

case(
    "extensions_function_made_by_type", lambda x, y: onnx_where(x > 0, x, y), tensor(2, 3), tensor(2, 3), runs=True,
    migrates=False, source=f"{EXTENSIONS}onnxruntime_extensions/pnp/_torchext.py",
)  # fmt: skip


WINDOW = torch.ones(8)


class StftNorm(Function):
    @staticmethod
    def symbolic(g, self, n_fft, hop_length, window):
        t_n_fft = g.op("Constant", value_t=torch.tensor(n_fft, dtype=torch.int64))
        t_hop_length = g.op("Constant", value_t=torch.tensor(hop_length, dtype=torch.int64))
        t_frame_size = g.op("Constant", value_t=torch.tensor(n_fft, dtype=torch.int64))
        return g.op("ai.onnx.contrib::StftNorm", self, t_n_fft, t_hop_length, window, t_frame_size)

    @staticmethod
    def forward(ctx, audio, n_fft, hop_length, window):
        stft = torch.stft(audio, n_fft, hop_length, window.shape[0], window, center=True, return_complex=True)
        return stft.abs() ** 2


case(
    "extensions_stft",
    lambda x: StftNorm.apply(x, 8, 4, WINDOW),
    tensor(1, 32),
    dynamic=False,
    domains=("ai.onnx.contrib",),
    source=f"{EXTENSIONS}onnxruntime_extensions/_torch_cvt.py",
)


def my_inverse(g, self):
    return g.op("ai.onnx.contrib::Inverse", self)


def my_all(g, self):
    return g.op("ai.onnx.contrib::All", self)


def triu(g, self, diagonal):
    return g.op("com.microsoft::Trilu", self, diagonal, upper_i=1).setType(self.type())


@parse_args("v", "i", "none")
def softmax(g, input, dim, dtype=None):
    result = g.op("Softmax", input, axis_i=dim)
    if dtype and dtype.node().kind() != "prim::Constant":
        raise RuntimeError("no other dtype")
    return result


def embedding(g, weight, indices, padding_idx, scale_grad_by_freq, sparse):
    output = g.op(
        "org.pytorch.aten::ATen", weight, indices, padding_idx, scale_grad_by_freq, sparse, operator_s="embedding"
    )
    sizes = symbolic_helper._get_tensor_sizes(indices)
    if sizes is not None and hasattr(weight.type(), "with_sizes"):
        output.setType(weight.type().with_sizes([*sizes, symbolic_helper._get_tensor_dim_size(weight, 1)]))
    return output


def grid_sample_handler(g, *args, **kwargs):
    grid = g.op("Transpose", args[1], perm_i=[0, 4, 1, 2, 3])
    factor = g.op("Constant", value_t=torch.tensor(10.0).to(torch.float32))
    grid = g.op("Mul", grid, factor)
    return g.op("custom_op::GridSamplePlugin", args[0], grid, mode_i=0, padding_mode_i=0, align_corners_i=1)


def atan2(g, input, other):
    slope = g.op("Atan", g.op("Div", input, other))
    zero = g.op("Constant", value_t=torch.tensor(0))
    pi = g.op("Constant", value_t=torch.tensor(math.pi))
    above = g.op("Greater", input, zero)
    other_half = g.op("Where", above, g.op("Add", slope, pi), g.op("Sub", slope, pi))
    return g.op("Where", g.op("Less", other, zero), other_half, slope)


def with_node(function):
    """Since torch 1.13, the original node is an attribute of the first argument."""

    def export(graph_context, *args, **kwargs):
        return function(graph_context, graph_context.original_node, *args, **kwargs)

    return export


@with_node
def cross_entropy_loss(g, node, logits, target, weight, reduction, ignore_index, label_smoothing=0.0):
    if symbolic_helper._maybe_get_const(label_smoothing, "f") > 0.0:
        raise RuntimeError("no label smoothing")
    output_type = next(iter(node.outputs())).type() if node else logits.type()
    name = ["none", "mean", "sum"][symbolic_helper._maybe_get_const(reduction, "i")]
    output, log_prob = g.op(
        "com.microsoft::SoftmaxCrossEntropyLossInternal", logits, target, ignore_index, reduction_s=name, outputs=2
    )
    output.setType(output_type)
    log_prob.setType(output_type)
    return output


def register_linalg_inv():
    register_custom_op_symbolic("::linalg_inv", my_inverse, 1)


def register_all():
    register_custom_op_symbolic("::all", my_all, 1)


def register_triu():
    register_custom_op_symbolic("::triu", triu, 1)


def register_softmax():
    register_custom_op_symbolic("::softmax", softmax, 17)


def register_embedding():
    register_custom_op_symbolic("::embedding", embedding, 14)


def register_grid_sampler():
    register_custom_op_symbolic("::grid_sampler", grid_sample_handler, 1)


def register_atan2():
    register_custom_op_symbolic("::atan2", atan2, 9)


def register_cross_entropy_loss():
    register_custom_op_symbolic("::cross_entropy_loss", cross_entropy_loss, 14)


WEIGHT, TARGET = tensor(5, 3), torch.tensor([0, 2])

GRID = (
    "custom_op::GridSamplePlugin[0]{align_corners=1, mode=0, padding_mode=0}(input 0, "
    "::Mul[0]{}(::Transpose[0]{perm=(0, 4, 1, 2, 3)}(input 1), ('float32', (), (10.0,))))"
)
TESTS = f"{EXTENSIONS}test/test_torch_ops.py"
OLDER = {"oracle": False}
"""The old exporter preferred torch's own function, which is of a newer opset."""

for _operator, _register, _opset, _forward, _inputs, _fields in (
    (
        "linalg_inv", register_linalg_inv, 1, lambda x: torch.inverse(x), (tensor(3, 3),),
        {"domains": ("ai.onnx.contrib",), "source": TESTS},
    ),
    (
        "all", register_all, 1, lambda x: torch.all(x > 0), (tensor(2, 3),),
        {
            **OLDER, "domains": ("ai.onnx.contrib",), "source": TESTS,
            "graph": ("ai.onnx.contrib::All[0]{}(::Greater[0]{}(input 0, ('float32', (), (0.0,))))",),
        },
    ),
    (
        "triu", register_triu, 1, lambda x: x.triu(1), (tensor(3, 3),),
        {
            **OLDER, "domains": ("com.microsoft",), "source": CONTRIB,
            "graph": ("com.microsoft::Trilu[0]{upper=1}(input 0, ('int64', (), (1,)))",),
        },
    ),
    (
        "softmax", register_softmax, 17, lambda x: torch.softmax(x, 1), (tensor(2, 3),),
        {"migrates": False, "source": CRYPTEN},
    ),
    (
        "embedding", register_embedding, 14, lambda x: torch.nn.functional.embedding((x > 0).long(), WEIGHT),
        (tensor(2, 3),), {"domains": ("org.pytorch.aten",), "migrates": False, "source": TRAINING},
    ),
    (
        "grid_sampler", register_grid_sampler, 1,
        lambda x, y: torch.nn.functional.grid_sample(x, y, align_corners=True),
        (tensor(1, 2, 3, 3, 3), tensor(1, 2, 2, 2, 3, low=-1.0, high=1.0)),
        {
            **OLDER, "graph": (GRID,), "domains": ("custom_op",), "migrates": False,
            "source": f"{DL4AGX}petr-trt/export_eval/bev_deploy/patch/custom_aten.py",
        },
    ),
    (
        "atan2", register_atan2, 9, lambda x, y: torch.atan2(x, y), (tensor(2, 3), tensor(2, 3, low=0.5, high=2.0)),
        {"source": f"{DL4AGX}far3d-trt/tools/export_onnx.py"},
    ),
    (
        "cross_entropy_loss", register_cross_entropy_loss, 14,
        lambda x: torch.nn.functional.cross_entropy(x, TARGET), (tensor(2, 3),),
        {"domains": ("com.microsoft",), "migrates": False, "source": TRAINING},
    ),
):  # fmt: skip
    case(
        f"runtime_{_operator}",
        _forward,
        *_inputs,
        setup=_register,
        undo=[(f"::{_operator}", _opset)],
        dynamic=False,
        alone=True,
        **_fields,
    )


QUANTIZED, SCALES = torch.ones(2, 1, 8, dtype=torch.uint8), torch.ones(2)


class MatMulNBits(Function):
    @staticmethod
    def symbolic(g, x, qweight, scales, qzeros, g_idx, bits, group_size, in_features, out_features):
        input_tuple = (x, qweight, scales) if qzeros is None else (x, qweight, scales, qzeros)
        input_tuple += (g_idx,) if g_idx is not None else ()
        return g.op(
            "com.microsoft::MatMulNBits", *input_tuple, outputs=1, K_i=in_features, N_i=out_features, bits_i=bits,
            block_size_i=group_size,
        )  # fmt: skip

    @staticmethod
    def forward(ctx, x, qweight, scales, qzeros, g_idx, bits, group_size, in_features, out_features):
        if is_in_onnx_export():
            return torch.zeros((*x.shape[:-1], out_features), dtype=x.dtype).float()
        return torch.matmul(x, torch.ones(in_features, out_features))


case(
    "qeff_quantized_matmul",
    lambda x: MatMulNBits.apply(x, QUANTIZED, SCALES, None, None, 4, 16, 16, 2),
    tensor(2, 16),
    domains=("com.microsoft",),
    source=f"{QEFF}matmulnbits.py",
)


class DequantizeBlocks(Function):
    @staticmethod
    def forward(weight: torch.Tensor, scale: torch.Tensor, zeros: torch.Tensor, block_size: int) -> torch.Tensor:
        scale, zeros = scale.repeat_interleave(block_size, dim=-1), zeros.repeat_interleave(block_size, dim=-1)
        return (weight.to(torch.int8) - zeros.to(torch.int8)) * scale

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        pass

    @staticmethod
    def symbolic(g: torch.Graph, weight, scale, zeros, block_size: int):
        return g.op("DequantizeLinear", weight, scale, zeros, axis_i=2, block_size_i=block_size)


case(
    "qeff_dequantize_blocks",
    lambda x, y, z: DequantizeBlocks.apply(x, y, z, 2),
    torch.ones(2, 3, 4, dtype=torch.int8),
    tensor(2, 3, 2),
    torch.zeros(2, 3, 2, dtype=torch.int8),
    dynamic=False,
    opset=21,
    oracle=False,
    graph=("::DequantizeLinear[0]{axis=2, block_size=2}(input 0, input 1, input 2)",),
    migrates=False,
    source=f"{QEFF}quantization_ops.py",
)


def quantize_symbolic(g, tensor, scale, offset, qmin, qmax, block_size=None):
    if len(symbolic_helper._get_tensor_sizes(scale) or []) == 0:
        scale = symbolic_helper._unsqueeze_helper(g, scale, [0])
    sizes = block_size or (1,)
    return g.op("aimet::quantize", tensor, scale, offset, qmin_i=qmin, qmax_i=qmax, block_size_i=sizes).setType(
        tensor.type()
    )


def register_symbolic(symbolic_fn):
    """Couple a Python function with a symbolic function."""

    def decorator(python_fn):
        class SymbolicHelper(Function):
            @staticmethod
            def forward(ctx, *args, **kwargs):
                return python_fn(*args, **kwargs)

            backward = NotImplemented
            symbolic = staticmethod(symbolic_fn)

        @functools.wraps(python_fn)
        def wrapper(*args, **kwargs):
            if is_in_onnx_export():
                return SymbolicHelper.apply(*args, **kwargs)
            return python_fn(*args, **kwargs)

        return wrapper

    return decorator


@register_symbolic(quantize_symbolic)
def quantize(tensor, scale, offset, qmin, qmax, block_size=None):
    return torch.clamp(torch.round(tensor / scale) - offset, qmin, qmax)


case(
    "aimet_symbolic_of_a_decorator",
    lambda x: quantize(x, torch.tensor(0.5), torch.tensor([1.0]), -8, 7, [2, 3]),
    tensor(2, 3),
    domains=("aimet",),
    dynamic=False,
    migrates=False,
    source=f"{AIMET}src/python/aimet_torch/v2/experimental/onnx/_export.py",
)


class SparseConv3d(Function):
    @staticmethod
    def symbolic(g, inputs, weight, bias, all_attrs):
        attrs = {}
        for k, v in all_attrs.items():
            if v:
                attrs[k + ("_s" if isinstance(v, str) else "_i")] = v
        if bias is not None:
            return g.op("spconv::SparseConv3d", inputs, weight, bias, **attrs)
        return g.op("spconv::SparseConv3d", inputs, weight, **attrs)

    @staticmethod
    def forward(ctx, inputs, weight, bias, all_attrs):
        return torch.nn.functional.conv3d(inputs, weight, bias, all_attrs["stride"])


case(
    "aimet_attributes_of_a_dict",
    lambda x, y: SparseConv3d.apply(x, y, None, {"stride": [1, 1, 1], "kind": "subm", "groups": 0}),
    tensor(1, 2, 3, 3, 3),
    tensor(2, 2, 1, 1, 1),
    domains=("spconv",),
    dynamic=False,
    migrates=False,
    source=f"{AIMET}src/python/aimet_torch/v1/nn/modules/custom.py",
)


class MultiOutput(Function):
    @staticmethod
    def symbolic(g, inp):
        return g.op("aimet_torch::MultiOutput", inp, outputs=5)

    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 4, x * 8, x * 16, x * 32


case(
    "aimet_five_outputs",
    lambda x: MultiOutput.apply(x),
    tensor(2, 3),
    domains=("aimet_torch",),
    source=f"{AIMET}test/python/v2/models_/models_to_test.py",
)

LIBRARY = torch.library.Library("legacy_runtimes", "DEF")
LIBRARY.define("cast_to_fp8(Tensor x, Tensor scale, Tensor amax, Tensor scale_inv, int index, int otype) -> Tensor")
LIBRARY.define("box_decode(Tensor codes, Tensor anchors, float[] factors, float[] window) -> Tensor")
LIBRARY.impl(
    "cast_to_fp8", lambda x, scale, amax, scale_inv, index, otype: x.to(torch.uint8), "CompositeExplicitAutograd"
)
LIBRARY.impl("box_decode", lambda codes, anchors, factors, window: codes * anchors, "CompositeExplicitAutograd")


def make_op_name(op_name: str) -> str:
    return "trt::" + op_name


def quantize_fp8(g, inputs, scale_inv, fp8_tensor):
    output_shape = torch.onnx.symbolic_helper._get_tensor_sizes(inputs)
    if inputs.type().scalarType() == "Half":
        inputs = g.op("Cast", inputs, to_i=torch._C._onnx.TensorProtoDataType.FLOAT)
    scale = g.op("Constant", value_t=torch.tensor(scale_inv[fp8_tensor]))
    return g.op(make_op_name("TRT_FP8QuantizeLinear"), inputs, scale).setType(
        inputs.type().with_dtype(torch.uint8).with_sizes(output_shape)
    )


@parse_args("v", "v", "v", "fs", "i", "i")
def cast_to_fp8(g, inputs, scale, amax, scale_inv, fp8_tensor, otype):
    return quantize_fp8(g, inputs, scale_inv, fp8_tensor)


@parse_args("v", "v", "v", "v")
def box_decode(g, codes, anchors, factors, window):
    outputs = g.op("Sony::FasterRCNNBoxDecode", codes, anchors, factors, window, outputs=1)
    outputs.setType(codes.type())
    return outputs


def register_cast_to_fp8():
    register_custom_op_symbolic("legacy_runtimes::cast_to_fp8", cast_to_fp8, 1)


def register_box_decode():
    register_custom_op_symbolic("legacy_runtimes::box_decode", box_decode, 1)


case(
    "transformer_engine_list_of_a_tensor",
    lambda x: torch.ops.legacy_runtimes.cast_to_fp8(
        x.half(), torch.ones(2), torch.ones(2), torch.tensor([0.5, 0.25]), 1, 6
    ),
    tensor(2, 3),
    setup=register_cast_to_fp8,
    undo=[("legacy_runtimes::cast_to_fp8", 1)],
    domains=("trt",),
    dynamic=False,
    migrates=False,
    alone=True,
    source=TRANSFORMER_ENGINE,
)
case(
    "sony_box_decode",
    lambda x, y: torch.ops.legacy_runtimes.box_decode(x, y, [10.0, 10.0, 5.0, 5.0], [0.0, 0.0, 1.0, 1.0]),
    tensor(2, 3, 4),
    tensor(2, 3, 4),
    setup=register_box_decode,
    undo=[("legacy_runtimes::box_decode", 1)],
    domains=("Sony",),
    alone=True,
    source=SONY,
)


class NoOper(Function):
    @staticmethod
    def symbolic(graph, input_, handle_dic, h_id):
        return input_

    @staticmethod
    def forward(ctx, input_, handle_dic, h_id):
        ctx.handle_dic, ctx.h_id = handle_dic, h_id
        return input_


HANDLES = {}

case(
    "deepspeed_handle_of_a_dict",
    lambda x: NoOper.apply(x.exp(), HANDLES, "grad").neg(),
    tensor(2, 3),
    runs=True,
    source=DEEPSPEED,
)
