"""Constants that a symbolic function reads: quantizers keep their ranges in buffers, and convert them to the input."""

import torch
from torch.autograd import Function
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

QUANTIZATION = (
    "https://github.com/NVIDIA/TensorRT/blob/35477bdb94ea/tools/pytorch-quantization/pytorch_quantization/"
    "tensor_quant.py"
)


class FakeQuant(Function):
    """Its range must be known when it is exported."""

    @staticmethod
    @parse_args("v", "t", "i")
    def symbolic(g, x, amax, bits):
        scale = g.op("Constant", value_t=amax / (2 ** (bits - 1) - 1))
        zero = g.op("Constant", value_t=torch.tensor(0, dtype=torch.int8))
        return g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero), scale, zero)

    @staticmethod
    def forward(ctx, x, amax, bits):
        scale = amax / (2 ** (bits - 1) - 1)
        return torch.round(x / scale) * scale


class Quantizer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("amax", torch.tensor(2.5))


QUANTIZER = Quantizer()

for _name, _range in {
    "a_buffer": lambda x: QUANTIZER.amax,
    "data_of_a_buffer": lambda x: QUANTIZER.amax.data,
    "a_detached_buffer": lambda x: QUANTIZER.amax.detach(),
    "item_of_a_buffer": lambda x: torch.tensor(QUANTIZER.amax.item()),
    "type_as": lambda x: torch.tensor(2.0).type_as(x),
    "integer_as_the_input": lambda x: torch.tensor(2).type_as(x),
    "to_the_input": lambda x: torch.tensor(2.0).to(x),
    "to_the_dtype": lambda x: torch.tensor(2.0).to(x.dtype),
    "half_of_a_constant": lambda x: torch.tensor(4.0) * 0.5,
}.items():
    case(
        f"range_from_{_name}",
        lambda x, amax=_range: FakeQuant.apply(x, amax(x), 8),
        tensor(2, 3),
        migrates=False,
        source=QUANTIZATION,
    )
