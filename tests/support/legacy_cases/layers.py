"""Activations and normalizations of model libraries: timm, NeMo, transformers, TinyNeuralNetwork, brevitas."""

import torch
from torch import Tensor
from torch.autograd import Function

from legacy_cases.table import case, tensor

ASCEND = "https://github.com/Ascend/ModelZoo-PyTorch/blob/6a2804a358a5/PyTorch/"
TIMM = f"{ASCEND}contrib/cv/classification/GhostNet/timm/models/layers/activations_me.py"
NEMO = (
    "https://github.com/NVIDIA/NeMo/blob/8cfedd720346/nemo/collections/nlp/modules/common/megatron/fused_bias_gelu.py"
)
DEBERTA = (
    f"{ASCEND}built-in/nlp/MT5_ID4146_for_PyTorch/transformers/src/transformers/models/deberta_v2/"
    "modeling_deberta_v2.py"
)
TINYNN = "https://github.com/alibaba/TinyNeuralNetwork/blob/cddc4124b3af/tinynn/graph/rewriter.py"
BREVITAS = "https://github.com/Xilinx/brevitas/blob/b106358c4169/src/brevitas/"


@torch.jit.script
def swish_forward(x):
    return x.mul(torch.sigmoid(x))


class Swish(Function):
    @staticmethod
    def symbolic(g, x):
        return g.op("Mul", x, g.op("Sigmoid", x))

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return swish_forward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x


case("timm_swish_of_a_scripted_function", lambda x: Swish.apply(x), tensor(2, 3), runs=True, source=TIMM)


class HardSwish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x + 3).clamp(min=0, max=6).div(6.0)

    @staticmethod
    def symbolic(g, self):
        shifted = g.op("Add", self, g.op("Constant", value_t=torch.tensor(3, dtype=torch.float)))
        low = g.op("Constant", value_t=torch.tensor(0, dtype=torch.float))
        high = g.op("Constant", value_t=torch.tensor(6, dtype=torch.float))
        gate = g.op(
            "Div", g.op("Clip", shifted, low, high), g.op("Constant", value_t=torch.tensor(6, dtype=torch.float))
        )
        return g.op("Mul", self, gate)


case("timm_hard_swish", lambda x: HardSwish.apply(x), tensor(2, 3), runs=True, source=TIMM)


class BiasGelu(Function):
    @staticmethod
    def forward(ctx, input, bias):
        ctx.save_for_backward(input, bias)
        return torch.nn.functional.gelu(bias + input, approximate="tanh")

    @staticmethod
    def symbolic(g: torch.Graph, input: torch.Value, bias: torch.Value):
        x = g.op("Add", input, bias)
        half = g.op("Constant", value_t=torch.tensor(0.5, dtype=torch.float16))
        one = g.op("Constant", value_t=torch.tensor(1.0, dtype=torch.float16))
        factor = g.op("Constant", value_t=torch.tensor(0.79788456, dtype=torch.float16))
        cubic = g.op("Constant", value_t=torch.tensor(0.044715, dtype=torch.float16))
        inner = g.op("Add", one, g.op("Mul", x, g.op("Mul", cubic, x)))
        curve = g.op("Tanh", g.op("Mul", factor, g.op("Mul", x, inner)))
        return g.op("Mul", g.op("Mul", x, half), g.op("Add", one, curve))


case("nemo_bias_gelu_of_half", lambda x, y: BiasGelu.apply(x, y), tensor(2, 3).half(), tensor(2, 3).half(), source=NEMO)


class XSoftmax(Function):
    @staticmethod
    def forward(self, input, mask, dim):
        self.dim = dim
        rmask = ~(mask.bool())
        output = torch.softmax(input.masked_fill(rmask, torch.finfo(input.dtype).min), self.dim)
        output.masked_fill_(rmask, 0)
        self.save_for_backward(output)
        return output

    @staticmethod
    def symbolic(g, self, mask, dim):
        import torch.onnx.symbolic_helper as sym_help
        from torch.onnx.symbolic_opset9 import masked_fill, softmax

        mask_cast_value = g.op("Cast", mask, to_i=sym_help.cast_pytorch_to_onnx["Long"])
        r_mask = g.op(
            "Cast",
            g.op("Sub", g.op("Constant", value_t=torch.tensor(1, dtype=torch.int64)), mask_cast_value),
            to_i=sym_help.cast_pytorch_to_onnx["Bool"],
        )
        output = masked_fill(g, self, r_mask, g.op("Constant", value_t=torch.tensor(torch.finfo(torch.float32).min)))
        output = softmax(g, output, dim)
        return masked_fill(g, output, r_mask, g.op("Constant", value_t=torch.tensor(0, dtype=torch.bool)))


case(
    "transformers_masked_softmax",
    lambda x, y: XSoftmax.apply(x, (y > 0).int(), -1),
    tensor(2, 3),
    tensor(2, 3),
    migrates=False,
    source=DEBERTA,
)

LAYER_NORM = torch.nn.LayerNorm(3).requires_grad_(False)


def layer_norm_of(mod):
    class CustomLayerNorm(Function):
        @staticmethod
        def symbolic(g, input):
            return g.op(
                "trt::LayerNorm",
                input,
                g.op("Constant", value_t=mod.weight.data),
                g.op("Constant", value_t=mod.bias.data),
                epsilon_f=mod.eps,
                axis_i=-len(mod.normalized_shape),
            )

        @staticmethod
        def forward(ctx, x):
            return torch.nn.functional.layer_norm(x, mod.normalized_shape, mod.weight.data, mod.bias.data, mod.eps)

    return CustomLayerNorm


case(
    "tinynn_layer_norm_of_a_module",
    lambda x: layer_norm_of(LAYER_NORM).apply(x),
    tensor(2, 3),
    domains=("trt",),
    migrates=False,
    source=TINYNN,
)


class ScalarClampMin(Function):
    @staticmethod
    def forward(ctx, x: Tensor, min_val: float) -> Tensor:
        return torch.clamp_min(x, min_val)

    @staticmethod
    def symbolic(g, x: Tensor, min_val: float):
        return g.op("Clip", x, torch.tensor(min_val))


class TensorClamp(Function):
    @staticmethod
    def forward(ctx, x: Tensor, min_val: Tensor, max_val: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, min_val), max_val)

    @staticmethod
    def symbolic(g, x: Tensor, min_val: Tensor, max_val: Tensor):
        y = g.op("Where", g.op("Greater", x, max_val), max_val, x)
        return g.op("Where", g.op("Less", y, min_val), min_val, y)


case(
    "brevitas_clamp_min", lambda x: ScalarClampMin.apply(x, -0.5), tensor(2, 3), runs=True,
    source=f"{BREVITAS}ops/autograd_ste_ops.py",
)  # fmt: skip
case(
    "brevitas_clamp_of_tensors",
    lambda x, y: TensorClamp.apply(x, y, torch.tensor([0.5, 1.0, 1.5])),
    tensor(2, 3),
    tensor(2, 3, low=-3.0, high=0.0),
    runs=True,
    source=f"{BREVITAS}ops/autograd_ste_ops.py",
)


class LSTMCell(Function):
    @staticmethod
    def symbolic(g, inp, weight_i, weight_h, bias, hidden_state, cell_state, direction, hidden_size, axes):
        outputs, hidden_state, cell_state = g.op(
            "LSTM",
            inp,
            weight_i,
            weight_h,
            bias,
            g.op("Constant", value_t=torch.tensor([3, 3], dtype=torch.int32)),
            hidden_state,
            cell_state,
            direction_s=direction,
            hidden_size_i=hidden_size,
            layout_i=0,
            outputs=3,
        )
        outputs = g.op("Squeeze", outputs, axes)
        return outputs, hidden_state, cell_state

    @staticmethod
    def forward(ctx, inp, weight_i, weight_h, bias, hidden_state, cell_state, direction, hidden_size, axes):
        steps, batch = inp.shape[:2]
        return torch.zeros(steps, batch, hidden_size), hidden_state * 1, cell_state * 1


LSTM_WEIGHT, LSTM_BIAS = torch.ones(1, 4, 1), torch.zeros(1, 8)
LSTM = (
    "::LSTM[{}]{{hidden_size=1}}(input 0, ('float32', (1, 4, 1), (1.0, 1.0, 1.0, 1.0)), "
    "('float32', (1, 4, 1), (1.0, 1.0, 1.0, 1.0)), ('float32', (1, 8), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)), "
    "('int32', (2,), (3, 3)), input 1, input 2)"
)

case(
    "brevitas_lstm_of_an_onnx_node",
    lambda x, y, z: LSTMCell.apply(x, LSTM_WEIGHT, LSTM_WEIGHT, LSTM_BIAS, y, z, "forward", 1, torch.tensor([1])),
    tensor(3, 2, 1),
    tensor(1, 2, 1),
    tensor(1, 2, 1),
    oracle=False,  # the old exporter fails inside torch
    graph=(f"::Squeeze[0]{{}}({LSTM.format(0)}, ('int64', (1,), (1,)))", LSTM.format(1), LSTM.format(2)),
    dynamic=False,
    source=f"{BREVITAS}export/onnx/function.py",
)


class Registered(Function):
    @staticmethod
    def symbolic(g, x, name):
        ret = g.op("brevitas.onnx::DebugMarker", x, export_debug_name_s=name)
        ret.setType(x.type())
        return ret

    @staticmethod
    def forward(ctx, x, name):
        return x * 1


def register_symbolics_of_functions():
    for function in (Registered,):
        torch.onnx.register_custom_op_symbolic(f"brevitas::{function.__name__}", function.symbolic, 1)


case(
    "brevitas_registers_the_symbolic_of_a_function",
    lambda x: Registered.apply(x, "layer"),
    tensor(2, 3),
    setup=register_symbolics_of_functions,
    undo=[("brevitas::Registered", 1)],
    oracle=False,  # the old exporter fails inside torch
    graph=("brevitas.onnx::DebugMarker[0]{export_debug_name=b'layer'}(input 0)",),
    domains=("brevitas.onnx",),
    migrates=False,
    source=f"{BREVITAS}export/onnx/manager.py",
)
