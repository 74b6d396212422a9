"""g.op: attributes of every kind, lists of them, several outputs, several nodes, domains."""

import numpy as np
import torch
from torch.autograd import Function

from legacy_cases.table import case, tensor


class FloatAttribute(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        return x * alpha + 1

    @staticmethod
    def symbolic(g, x, alpha):
        return g.op("custom::FloatAttribute", x, alpha_f=alpha)


case("float_attribute", lambda x: FloatAttribute.apply(x, 0.25), tensor(2, 3), domains=("custom",))


class IntAttribute(Function):
    @staticmethod
    def forward(ctx, x, axis):
        return x.sum(axis, keepdim=True)

    @staticmethod
    def symbolic(g, x, axis):
        # The axis of the node counts from the end.
        return g.op("custom::IntAttribute", x, axis_i=axis - 2, keepdims_i=1)


case("int_attribute", lambda x: IntAttribute.apply(x, 1), tensor(2, 3), domains=("custom",))


class StringAttribute(Function):
    @staticmethod
    def forward(ctx, x, mode):
        return x.relu() if mode == "relu" else x.sigmoid()

    @staticmethod
    def symbolic(g, x, mode):
        return g.op("custom::StringAttribute", x, mode_s=mode)


case("string_attribute", lambda x: StringAttribute.apply(x, "relu"), tensor(2, 3), domains=("custom",))


class TensorAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.tensor([1.0, 2.0, 3.0])

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::TensorAttribute", x, table_t=torch.tensor([1.0, 2.0, 3.0]))


case("tensor_attribute", lambda x: TensorAttribute.apply(x), tensor(2, 3), domains=("custom",))


class FloatsAttribute(Function):
    @staticmethod
    def forward(ctx, x, scales):
        return x * scales[0] + scales[1]

    @staticmethod
    def symbolic(g, x, scales):
        return g.op("custom::FloatsAttribute", x, scales_f=scales)


case("floats_attribute", lambda x: FloatsAttribute.apply(x, [2.0, 0.5]), tensor(2, 3), domains=("custom",))


class IntsAttribute(Function):
    @staticmethod
    def forward(ctx, x, kernel, stride):
        return torch.nn.functional.avg_pool2d(x, kernel, stride)

    @staticmethod
    def symbolic(g, x, kernel, stride):
        return g.op("custom::IntsAttribute", x, kernel_i=list(kernel), stride_i=tuple(stride))


case("ints_attribute", lambda x: IntsAttribute.apply(x, (2, 3), (1, 2)), tensor(2, 2, 4, 6), domains=("custom",))


class StringsAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::StringsAttribute", x, names_s=["one", "two"])


case("strings_attribute", lambda x: StringsAttribute.apply(x), tensor(2, 3), domains=("custom",))


class TensorsAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::TensorsAttribute", x, tables_t=[torch.tensor([1, 2]), torch.tensor([[3.0]])])


case("tensors_attribute", lambda x: TensorsAttribute.apply(x), tensor(2, 3), domains=("custom",))


class ManyAttributes(Function):
    @staticmethod
    def forward(ctx, x, size, ratio, aligned):
        return torch.nn.functional.interpolate(x, scale_factor=ratio) + int(aligned) + sum(size)

    @staticmethod
    def symbolic(g, x, size, ratio, aligned):
        return g.op(
            "custom::ManyAttributes",
            x,
            output_height_i=size[0],
            output_width_i=size[1],
            spatial_scale_f=ratio,
            aligned_i=aligned,
            mode_s="avg",
            coordinates_s=None,
        )


case(
    "many_attributes", lambda x: ManyAttributes.apply(x, (7, 9), 2, True), tensor(2, 2, 3, 4), domains=("custom",)
)  # fmt: skip


class NumpyAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        return x.floor() + 1

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::NumpyAttribute", x, eps_f=float(np.float32(0.5)), sizes_i=[int(n) for n in np.arange(3)])


case("numpy_attribute", lambda x: NumpyAttribute.apply(x), tensor(2, 3), domains=("custom",))


class NumbersAsInputs(Function):
    @staticmethod
    def forward(ctx, x, low, high):
        return x.clamp(low, high)

    @staticmethod
    def symbolic(g, x, low, high):
        return g.op("Clip", x, g.op("Constant", value_t=torch.tensor(low)), torch.tensor(high))


case("tensors_as_inputs", lambda x: NumbersAsInputs.apply(x, -0.5, 1.0), tensor(2, 3), runs=True)


class TwoOutputs(Function):
    @staticmethod
    def forward(ctx, x):
        return x.max(1).values, x.max(1).indices

    @staticmethod
    def symbolic(g, x):
        values, indices = g.op("custom::TwoOutputs", x, axis_i=1, outputs=2)
        return values, indices


case("two_outputs", lambda x: TwoOutputs.apply(x), tensor(2, 3), domains=("custom",))


class ThreeOutputsOneUsed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cos()

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::ThreeOutputs", x, outputs=3)[1]


case("three_outputs_one_used", lambda x: ThreeOutputsOneUsed.apply(x), tensor(2, 3), domains=("custom",))


class StandardOutputs(Function):
    @staticmethod
    def forward(ctx, x, count):
        return torch.topk(x, count, 1)

    @staticmethod
    def symbolic(g, x, count):
        k = g.op("Constant", value_t=torch.tensor([count], dtype=torch.int64))
        values, indices = g.op("TopK", g.op("Neg", x), k, axis_i=1, largest_i=0, sorted_i=1, outputs=2)
        return g.op("Neg", values), indices


case("standard_outputs", lambda x: tuple(StandardOutputs.apply(x, 2)), tensor(2, 5), runs=True)


class SeveralNodes(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0) / (1 + torch.exp(-x))

    @staticmethod
    def symbolic(g, x):
        zero = g.op("Constant", value_t=torch.tensor(0.0))
        one = g.op("Constant", value_t=torch.tensor(1.0))
        top = g.op("Max", x, zero)
        bottom = g.op("Add", one, g.op("Exp", g.op("Neg", x)))
        return g.op("Div", top, bottom)


case("several_nodes", lambda x: SeveralNodes.apply(x), tensor(2, 3), runs=True)


class IntConstant(Function):
    @staticmethod
    def forward(ctx, a, b):
        return 2 * a + b

    @staticmethod
    def symbolic(g, a, b):
        # An int64 constant times a float: the old exporter's pass over scalar types makes it a float.
        two = g.op("Constant", value_t=torch.tensor([2]))
        a = g.op("Mul", a, two)
        return g.op("Add", a, b)


case("int_constant", lambda x, y: IntConstant.apply(x, y), tensor(2, 3), tensor(2, 3), runs=True)


class TensorConstants(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.cat([x * 0.5, x[:, :2] * 3], 1)

    @staticmethod
    def symbolic(g, x):
        left = g.op("Mul", x, g.op("Constant", value_t=torch.tensor(0.5, dtype=torch.float32)))
        starts = g.op("Constant", value_t=torch.tensor([0]))
        ends = g.op("Constant", value_t=torch.tensor([2]))
        axes = g.op("Constant", value_t=torch.tensor([1]))
        right = g.op("Mul", g.op("Slice", x, starts, ends, axes), g.op("Constant", value_t=torch.tensor(3.0)))
        return g.op("Concat", left, right, axis_i=1)


case("constants_of_tensors", lambda x: TensorConstants.apply(x), tensor(2, 3), runs=True)


class NumberConstants(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0.5 + 2

    @staticmethod
    def symbolic(g, x):
        half = g.op("Constant", value_f=0.5)
        two = g.op("Constant", value_i=2)
        name = g.op("Constant", value_s="half")
        return g.op("custom::NumberConstants", x, half, two, name)


case(
    "constants_of_numbers",
    lambda x: NumberConstants.apply(x),
    tensor(2, 3),
    oracle=False,
    graph=(
        "custom::NumberConstants[0]{}(input 0, ('float32', (), (0.5,)), ('int64', (), (2,)), "
        "('object', (), ('half',)))",
    ),
    domains=("custom",),
)


class TwoDomains(Function):
    @staticmethod
    def forward(ctx, x):
        return (x + 1).sin()

    @staticmethod
    def symbolic(g, x):
        return g.op("second_domain::Finish", g.op("custom::Start", x, alpha_f=1.0), g.op("Neg", x))


case("two_domains", lambda x: TwoDomains.apply(x), tensor(2, 3), domains=("custom", "second_domain"))


class DottedDomain(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.gelu(x)

    @staticmethod
    def symbolic(g, x):
        return g.op("com.microsoft::Gelu", x)


case("dotted_domain", lambda x: DottedDomain.apply(x), tensor(2, 3), runs=True, domains=("com.microsoft",))


class NamedDomain(Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs().sqrt()

    @staticmethod
    def symbolic(g, x):
        return g.op("onnx::Sqrt", g.op("onnx::Sqrt", g.op("onnx::Mul", x, x)))


case("onnx_domain_by_name", lambda x: NamedDomain.apply(x), tensor(2, 3), runs=True)


class CastAndMod(Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs().int(), x.fmod(0.75)

    @staticmethod
    def symbolic(g, x):
        divisor = g.op("Constant", value_t=torch.tensor(0.75))
        size = g.op("Max", x, g.op("Neg", x))
        return g.op("Cast", size, to_i=6), g.op("Mod", x, divisor, fmod_i=1)


case("two_values_of_two_nodes", lambda x: CastAndMod.apply(x), tensor(2, 3), runs=True)
