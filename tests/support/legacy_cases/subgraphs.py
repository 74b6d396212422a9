"""Nodes with subgraphs, and functions of onnxscript."""

import onnxscript
import torch
from onnxscript import opset18
from torch.autograd import Function

from legacy_cases.table import case, tensor

try:
    from torch.onnx._internal.torchscript_exporter import jit_utils
except ImportError:
    from torch.onnx._internal import jit_utils

DOMAIN = onnxscript.values.Opset("custom.script", 1)


@onnxscript.script(DOMAIN, default_opset=opset18)
def Selu(X, alpha: float, gamma: float):
    zero = opset18.CastLike(opset18.Constant(value_float=0.0), X)
    a = opset18.CastLike(opset18.Constant(value_float=alpha), X)
    c = opset18.CastLike(opset18.Constant(value_float=gamma), X)
    return c * opset18.Where(zero >= X, a * opset18.Exp(X) - a, X)


class ScriptFunction(Function):
    @staticmethod
    def forward(ctx, x):
        return 1.05 * torch.where(x <= 0, 1.6 * torch.exp(x) - 1.6, x)

    @staticmethod
    def symbolic(g, x):
        return g.onnxscript_op(Selu, x, alpha_f=1.6, gamma_f=1.05).setType(x.type())


case(
    "onnxscript_function",
    lambda x: ScriptFunction.apply(x),
    tensor(2, 3),
    runs=True,
    domains=("custom.script",),
    migrates=False,
)


class Branch(Function):
    @staticmethod
    def forward(ctx, x, y):
        return torch.where(x.sum() > 0, x + y, x - y)

    @staticmethod
    def symbolic(g, x, y):
        zero = g.op("Constant", value_t=torch.tensor(0.0))
        positive = g.op("Greater", g.op("ReduceSum", x, keepdims_i=0), zero)
        result, (then_context, else_context), _ = jit_utils.add_op_with_blocks(g, "If", positive, n_blocks=2)
        added = then_context.op("Add", x, y)
        then_context.block.registerOutput(added)
        subtracted = else_context.op("Sub", x, y)
        else_context.block.registerOutput(subtracted)
        result.setType(x.type())
        return result


case("if_with_blocks", lambda x, y: Branch.apply(x, y), tensor(2, 3), tensor(2, 3), runs=True, migrates=False)


class NestedBranch(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.where(x.sum() > 0, x.exp(), torch.where(x.min() > -1, x.neg(), x.abs()))

    @staticmethod
    def symbolic(g, x):
        zero = g.op("Constant", value_t=torch.tensor(0.0))
        low = g.op("Constant", value_t=torch.tensor(-1.0))
        positive = g.op("Greater", g.op("ReduceSum", x, keepdims_i=0), zero)
        result, (yes, no), _ = jit_utils.add_op_with_blocks(g, "If", positive, n_blocks=2)
        yes.block.registerOutput(yes.op("Exp", x))
        above = no.op("Greater", no.op("ReduceMin", x, keepdims_i=0), low)
        inner, (inner_yes, inner_no), _ = jit_utils.add_op_with_blocks(no, "If", above, n_blocks=2)
        inner_yes.block.registerOutput(inner_yes.op("Neg", x))
        inner_no.block.registerOutput(inner_no.op("Abs", x))
        inner.setType(x.type())
        no.block.registerOutput(inner)
        result.setType(x.type())
        return result


case("if_inside_if", lambda x: NestedBranch.apply(x), tensor(2, 3) - 1, runs=True, migrates=False)
