"""An autograd.Function with ``symbolic`` becomes one node; another without it becomes the nodes of its formula.

opbridge run-script examples/tutorial/old/clamp_swish.py build/clamp_swish.onnx
"""

import sys

import torch


class CustomOp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.clamp(min=0)
        return x / (1 + torch.exp(-x))


class CustomOp2(torch.autograd.Function):
    @staticmethod
    def symbolic(g, x):
        return g.op("custom_domain::customOp2", x)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.clamp(min=0)
        return x / (1 + torch.exp(-x))


custom_op = CustomOp.apply
custom_op2 = CustomOp2.apply


class Model(torch.nn.Module):
    def forward(self, x):
        return custom_op2(custom_op(x) - 0.25)


if __name__ == "__main__":
    torch.onnx.export(
        Model().eval(),
        (torch.randn(1, 3, 16, 16),),
        sys.argv[1] if len(sys.argv) > 1 else "clamp_swish.onnx",
        opset_version=13,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        custom_opsets={"custom_domain": 1},
    )
