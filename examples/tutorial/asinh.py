"""Give an ATen operator a mapping of your own.

torch.onnx maps ``aten::asinh`` to ONNX's ``Asinh``, which some engines have no kernel for. The translation below says
the same with operators that every engine has. A mapping of yours beats opbridge's and torch's own.

    opbridge export examples/tutorial/asinh.py:model -o build/asinh
"""

import torch
from onnxscript import opset18 as op

import opbridge

LN_2 = 0.6931471805599453


@opbridge.translation("aten::asinh", overrides="for engines without an Asinh kernel")
def asinh(self):
    """The inverse hyperbolic sine, as the schema aten::asinh(Tensor self) -> Tensor wants it.

    asinh(x) = sign(x) log1p(|x| + x² / (1 + sqrt(x² + 1))): unlike log(x + sqrt(x² + 1)), it loses no digits near 0.
    """
    magnitude = op.Abs(self)
    inverse = op.Reciprocal(magnitude)
    # x² / (1 + sqrt(x² + 1)) divided by x twice over: no square of a large number overflows.
    tail = op.Div(magnitude, op.Add(inverse, op.Sqrt(op.Add(op.Mul(inverse, inverse), 1.0))))
    argument = op.Add(magnitude, tail)
    # ONNX has no log1p. log(u) y / (u - 1) with u = 1 + y is one: the rounding of u cancels (Kahan).
    shifted = op.Add(argument, 1.0)
    is_tiny = op.Equal(shifted, 1.0)
    divisor = op.Sub(shifted, op.Where(is_tiny, op.CastLike(0.0, shifted), op.CastLike(1.0, shifted)))
    log1p = op.Where(is_tiny, argument, op.Mul(op.Log(shifted), op.Div(argument, divisor)))
    # Of the largest numbers even the sum overflows; there asinh(x) = log(x) + log(2).
    is_large = op.Greater(magnitude, 1e4)
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
