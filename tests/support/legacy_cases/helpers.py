"""symbolic_helper, parse_args, and the functions of symbolic_opset9 and later, called from a symbolic."""

import torch
from torch.autograd import Function
from torch.onnx import symbolic_helper as sym_help
from torch.onnx import symbolic_opset9, symbolic_opset11, symbolic_opset13
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor


class ParsedNumbers(Function):
    @staticmethod
    def forward(ctx, x, axis, alpha, keep, mode):
        return x.mean(axis, keepdim=keep) * alpha

    @staticmethod
    @parse_args("v", "i", "f", "b", "s")
    def symbolic(g, x, axis, alpha, keep, mode):
        return g.op("custom::ParsedNumbers", x, axis_i=axis, alpha_f=alpha, keep_i=keep, mode_s=mode)


case(
    "parse_args_numbers",
    lambda x: ParsedNumbers.apply(x, 1, 2.0, True, "mean"),
    tensor(2, 3),
    domains=("custom",),
)


class ParsedLists(Function):
    @staticmethod
    def forward(ctx, x, sizes, scales, nothing):
        return torch.nn.functional.max_pool2d(x, sizes) * scales[0]

    @staticmethod
    @parse_args("v", "is", "fs", "none")
    def symbolic(g, x, sizes, scales, nothing):
        return g.op("custom::ParsedLists", x, sizes_i=sizes, scales_f=scales)


case(
    "parse_args_lists",
    lambda x: ParsedLists.apply(x, [2, 2], [0.5, 1.5], None),
    tensor(2, 2, 4, 4),
    domains=("custom",),
)


class UnsqueezeHelper(Function):
    @staticmethod
    def forward(ctx, x):
        return x.unsqueeze(1) + 1

    @staticmethod
    def symbolic(g, x):
        y = sym_help._unsqueeze_helper(g, x, [1])
        return g.op("Add", y, g.op("Constant", value_t=torch.tensor(1.0)))


case("unsqueeze_helper", lambda x: UnsqueezeHelper.apply(x), tensor(2, 3), runs=True)


class SqueezeHelper(Function):
    @staticmethod
    def forward(ctx, x):
        return 0.0 - x.squeeze(1)

    @staticmethod
    def symbolic(g, x):
        return g.op("Neg", sym_help._squeeze_helper(g, x, [1]))


case("squeeze_helper", lambda x: SqueezeHelper.apply(x), tensor(2, 1, 3), runs=True)


class SliceHelper(Function):
    @staticmethod
    def forward(ctx, x):
        return x[:, 1:3].abs()

    @staticmethod
    def symbolic(g, x):
        return g.op("Abs", sym_help._slice_helper(g, x, axes=[1], starts=[1], ends=[3]))


case("slice_helper", lambda x: SliceHelper.apply(x), tensor(2, 5), runs=True)


class ReduceSumHelper(Function):
    @staticmethod
    def forward(ctx, x):
        return x[:, 0] + x[:, 1] + x[:, 2]

    @staticmethod
    def symbolic(g, x):
        return sym_help._reducesum_helper(g, x, axes_i=[1], keepdims_i=0)


case("reducesum_helper", lambda x: ReduceSumHelper.apply(x), tensor(2, 3, 4), runs=True)


class ReshapeHelper(Function):
    @staticmethod
    def forward(ctx, x):
        return x.reshape(-1, 2, 3).relu()

    @staticmethod
    def symbolic(g, x):
        shape = g.op("Constant", value_t=torch.tensor([-1, 2, 3]))
        return g.op("Relu", sym_help._reshape_helper(g, x, shape))


case("reshape_helper", lambda x: ReshapeHelper.apply(x), tensor(2, 6), runs=True)


class TopkHelper(Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.topk(2, 1)
        return values, indices

    @staticmethod
    def symbolic(g, x):
        return sym_help._topk_helper(g, x, 2, 1)


case("topk_helper", lambda x: TopkHelper.apply(x), tensor(2, 5))


class ConstantsAreKnown(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3 + 1

    @staticmethod
    def symbolic(g, x):
        three = g.op("Constant", value_t=torch.tensor(3))
        known = sym_help._maybe_get_const(three, "i")
        return g.op(
            "custom::ConstantsAreKnown",
            x,
            known_i=int(known),
            value_i=sym_help._is_value(three),
            python_i=sym_help._is_value(3),
            constant_i=sym_help._is_constant(three),
        )


case("constants_are_known", lambda x: ConstantsAreKnown.apply(x), tensor(2, 3), domains=("custom",), migrates=False)


class SizesHelper(Function):
    @staticmethod
    def forward(ctx, x, weight):
        return x @ weight + 1

    @staticmethod
    def symbolic(g, x, weight):
        rank = sym_help._get_tensor_rank(x)
        rows, columns = sym_help._get_tensor_sizes(weight)
        last = sym_help._get_tensor_dim_size(weight, -1)
        return g.op("custom::SizesHelper", x, weight, rank_i=rank, shape_i=[rows, columns], last_i=last)


case(
    "tensor_sizes_helper",
    lambda x, y: SizesHelper.apply(x, y),
    tensor(2, 3),
    tensor(3, 4),
    domains=("custom",),
    dynamic=False,
)


class DtypeHelpers(Function):
    @staticmethod
    def forward(ctx, x):
        return x.long()

    @staticmethod
    def symbolic(g, x):
        assert sym_help._is_fp(x)
        return g.op("Cast", g.op("Floor", g.op("Abs", x)), to_i=sym_help.cast_pytorch_to_onnx["Long"])


case(
    "dtype_helpers",
    lambda x: DtypeHelpers.apply(x),
    tensor(2, 3),
    runs=True,
    reference=lambda x: x.abs().floor().long(),
)


class Opset9Functions(Function):
    @staticmethod
    def forward(ctx, x, y):
        return y + torch.relu(y * x)

    @staticmethod
    def symbolic(g, x, y):
        return symbolic_opset9.add(g, symbolic_opset9.relu(g, symbolic_opset9.mul(g, x, y)), y)


case("opset9_functions", lambda x, y: Opset9Functions.apply(x, y), tensor(2, 3), tensor(2, 3), runs=True)


class Opset11Functions(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.clamp(x, -1.0, 0.5) - 1

    @staticmethod
    def symbolic(g, x):
        low = g.op("Constant", value_t=torch.tensor(-1.0))
        high = g.op("Constant", value_t=torch.tensor(0.5))
        y = symbolic_opset11.clamp(g, x, low, high)
        return g.op("Sub", y, g.op("Constant", value_t=torch.tensor(1.0)))


case("opset11_functions", lambda x: Opset11Functions.apply(x), tensor(2, 3), runs=True)


class Opset13Functions(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.softmax(x, 1) * 2

    @staticmethod
    def symbolic(g, x):
        y = symbolic_opset13.softmax(g, x, 1)
        return g.op("Mul", y, g.op("Constant", value_t=torch.tensor(2.0)))


case("opset13_functions", lambda x: Opset13Functions.apply(x), tensor(2, 3), runs=True)


class ExpandBothWays(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.expand_as(y) + y

    @staticmethod
    def symbolic(g, x, y):
        shape = symbolic_opset9._shape_as_tensor(g, y)
        return g.op("Add", g.op("Expand", x, shape), y)


case("shape_as_tensor", lambda x, y: ExpandBothWays.apply(x, y), tensor(2, 1), tensor(2, 3), runs=True)
