"""The oldest way to declare an operator, symbolic_registry.register_op, which torch 1.13 removed.

torch maps ``aten::asinh`` to ONNX's ``Asinh``. The mapping below differs, so the model shows which mapping is used.

    opbridge run-script examples/tutorial/old/asinh.py build/asinh.onnx
"""

import sys

import torch
from torch.onnx.symbolic_registry import register_op


def asinh_symbolic(g, input, *, out=None):
    # asinh(x) = log(x + sqrt(x * x + 1))
    one = g.op("Constant", value_t=torch.tensor(1.0))
    root = g.op("Sqrt", g.op("Add", g.op("Mul", input, input), one))
    return g.op("Log", g.op("Add", input, root))


register_op("asinh", asinh_symbolic, "", 9)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x)


if __name__ == "__main__":
    torch.onnx.export(
        Model().eval(),
        torch.rand(1, 3, 10, 10),
        sys.argv[1] if len(sys.argv) > 1 else "asinh.onnx",
        opset_version=18,
        input_names=["x"],
        output_names=["y"],
        do_constant_folding=True,
    )
