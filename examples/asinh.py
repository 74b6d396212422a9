"""Give an ATen operator a mapping of your own.

torch.onnx maps ``aten::asinh`` to ONNX's ``Asinh``, which some engines have no kernel for. The translation below says
the same with operators that every engine has. A mapping of yours beats opbridge's and torch's own.

    opbridge export examples/asinh.py:model -o build/asinh
"""

import torch
from onnxscript import opset18 as op

import opbridge

LN_2 = 0.6931471805599453


@opbridge.translation("aten::asinh", overrides="OpenVINO-era engines without an Asinh kernel run this one")
def asinh(self):
    """asinh(Tensor self) -> Tensor

    asinh(x) = sign(x) log1p(|x| + x² / (1 + sqrt(x² + 1))): unlike log(x + sqrt(x² + 1)), it loses no digits near 0.
    """
    magnitude = op.Abs(self)
    # Squares of larger numbers overflow in float32 long before asinh does; there asinh(x) = log(x) + log(2).
    is_large = op.Greater(magnitude, 1e8)
    bounded = op.Min(magnitude, op.CastLike(op.Constant(value_float=1e8), magnitude))
    square = op.Mul(bounded, bounded)
    argument = op.Add(bounded, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1.0)), 1.0)))
    # ONNX has no log1p. log(u) * y / (u - 1) with u = 1 + y is one: the rounding of u cancels (Kahan).
    shifted = op.Add(argument, 1.0)
    is_tiny = op.Equal(shifted, 1.0)
    divisor = op.Where(is_tiny, op.CastLike(1.0, shifted), op.Sub(shifted, 1.0))
    log1p = op.Where(is_tiny, argument, op.Div(op.Mul(op.Log(shifted), argument), divisor))
    return op.Mul(op.Sign(self), op.Where(is_large, op.Add(op.Log(magnitude), LN_2), log1p))


class Asinh(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x)


def model():
    torch.manual_seed(0)
    return {
        "model": Asinh().eval(),
        "args": (torch.randn(4, 8),),
        "dynamic_shapes": {"x": {0: torch.export.Dim("batch")}},
        "input_names": ["x"],
        "output_names": ["y"],
    }
