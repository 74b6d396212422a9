"""What a symbolic asks of its values and of g."""

import torch
from torch.autograd import Function

from legacy_cases.table import case, tensor


class Sizes(Function):
    @staticmethod
    def forward(ctx, x):
        return x.flatten(1) + 1

    @staticmethod
    def symbolic(g, x):
        sizes = x.type().sizes()
        return g.op("custom::Sizes", x, rank_i=len(sizes), channels_i=sizes[1], height_i=sizes[2])


case("sizes", lambda x: Sizes.apply(x), tensor(2, 3, 4), domains=("custom",), dynamic=False)


class Rank(Function):
    @staticmethod
    def forward(ctx, x):
        return x.transpose(-1, -2) * 2

    @staticmethod
    def symbolic(g, x):
        order = list(range(x.type().dim()))
        order[-1], order[-2] = order[-2], order[-1]
        return g.op("custom::Rank", x, order_i=order)


case("dim", lambda x: Rank.apply(x), tensor(2, 3, 4), domains=("custom",))


class ScalarType(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sinh()

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::ScalarType", x, dtype_s=x.type().scalarType())


case("scalar_type_float", lambda x: ScalarType.apply(x), tensor(2, 3), domains=("custom",))
case("scalar_type_double", lambda x: ScalarType.apply(x), tensor(2, 3).double(), domains=("custom",))
case("scalar_type_half", lambda x: ScalarType.apply(x), tensor(2, 3).half(), domains=("custom",))


class SetType(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sqrt() + 1

    @staticmethod
    def symbolic(g, x):
        y = g.op("custom::SetType", x)
        y.setType(x.type())
        return g.op("custom::AfterSetType", y, rank_i=y.type().dim(), dtype_s=y.type().scalarType())


case("set_type", lambda x: SetType.apply(x), tensor(2, 3, low=0.0), domains=("custom",))


class SetTypeSizes(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.pad(x, (1, 1))

    @staticmethod
    def symbolic(g, x):
        sizes = x.type().sizes()
        y = g.op("custom::SetTypeSizes", x)
        y.setType(x.type().with_sizes([sizes[0], sizes[1] + 2]))
        return g.op("custom::AfterSizes", y, width_i=y.type().sizes()[1])


case(
    "set_type_with_sizes",
    lambda x: SetTypeSizes.apply(x),
    tensor(2, 3),
    domains=("custom",),
    dynamic=False,
)


class SetTypeAs(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.cosh() + y

    @staticmethod
    def symbolic(g, x, y):
        result = g.op("custom::SetTypeAs", x, y).setTypeAs(x)
        return g.op("custom::AfterSetTypeAs", result, rank_i=result.type().dim())


case("set_type_as", lambda x, y: SetTypeAs.apply(x, y), tensor(2, 3), tensor(2, 3), domains=("custom",))


class NodeKind(Function):
    @staticmethod
    def forward(ctx, x):
        return (x.abs() + 1).log()

    @staticmethod
    def symbolic(g, x):
        y = g.op("Abs", x)
        kind = y.node().kind()
        one = g.op("Constant", value_t=torch.tensor(1.0))
        return g.op("custom::NodeKind", g.op("Add", y, one), kind_s=kind, constant_s=one.node().kind())


case("node_kind", lambda x: NodeKind.apply(x), tensor(2, 3), domains=("custom",), migrates=False)


class DebugName(Function):
    @staticmethod
    def forward(ctx, x):
        return (x.exp() + 1).log()

    @staticmethod
    def symbolic(g, x):
        y = g.op("custom::DebugName", x)
        y.setDebugName("half_way")
        return g.op("custom::AfterDebugName", y, name_s=y.debugName())


case("set_debug_name", lambda x: DebugName.apply(x), tensor(2, 3), domains=("custom",))


class CompleteTensor(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round() + 0.5

    @staticmethod
    def symbolic(g, x):
        made = g.op("custom::Unknown", x)
        return g.op("custom::Complete", made, made_i=made.isCompleteTensor())


case("is_complete_tensor", lambda x: CompleteTensor.apply(x), tensor(2, 3), domains=("custom",))


class CompleteInput(Function):
    @staticmethod
    def forward(ctx, x):
        return x.trunc() + 0.5

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::CompleteInput", x, complete_i=x.isCompleteTensor())


case(
    "is_complete_input",
    lambda x: CompleteInput.apply(x),
    tensor(2, 3),
    domains=("custom",),
    dynamic=False,
)


class Subtype(Function):
    @staticmethod
    def forward(ctx, x):
        return x.frac() + 2

    @staticmethod
    def symbolic(g, x):
        is_tensor = x.type().isSubtypeOf(torch._C.TensorType.get())
        is_list = x.type().isSubtypeOf(torch._C.ListType.ofTensors())
        return g.op("custom::Subtype", x, tensor_i=is_tensor, list_i=is_list, kind_s=x.type().kind())


case("is_subtype_of", lambda x: Subtype.apply(x), tensor(2, 3), domains=("custom",), migrates=False)


class Opset(Function):
    @staticmethod
    def forward(ctx, x):
        return x[:, :1] + x[:, 1:2] + x[:, 2:]

    @staticmethod
    def symbolic(g, x):
        if g.opset < 13:
            return g.op("ReduceSum", x, axes_i=[1], keepdims_i=1)
        return g.op("ReduceSum", x, g.op("Constant", value_t=torch.tensor([1])), keepdims_i=1)


case("opset_of_the_graph", lambda x: Opset.apply(x), tensor(2, 3), runs=True)
case("opset_20", lambda x: Opset.apply(x.exp()), tensor(2, 3), runs=True, opset=20)


class Aten(Function):
    @staticmethod
    def forward(ctx, x):
        return x.erfc()

    @staticmethod
    def symbolic(g, x):
        return g.at("erfc", x, overload_name="", flag_i=1)


case(
    "aten_node",
    lambda x: Aten.apply(x),
    tensor(2, 3),
    oracle=False,
    graph=("org.pytorch.aten::ATen[0]{flag=1, operator=b'erfc', overload_name=b''}(input 0)",),
    domains=("org.pytorch.aten",),
)


class AtenByName(Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs().log1p()

    @staticmethod
    def symbolic(g, x):
        return g.op("org.pytorch.aten::ATen", x, operator_s="log1p_abs")


case("aten_node_by_name", lambda x: AtenByName.apply(x), tensor(2, 3), domains=("org.pytorch.aten",))


class InputNode(Function):
    @staticmethod
    def forward(ctx, x):
        return x.asinh() * 2

    @staticmethod
    def symbolic(g, x):
        y = g.op("Sinh", g.op("Neg", x))
        inner = next(iter(y.node().inputs()))
        return g.op("custom::InputNode", inner, count_i=len(list(y.node().inputs())), name_s=inner.node().kind())


case("inputs_of_a_node", lambda x: InputNode.apply(x), tensor(2, 3), domains=("custom",), migrates=False)


class ConstantContents(Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.tensor([2.0, 3.0, 4.0]) + 1

    @staticmethod
    def symbolic(g, x):
        table = g.op("Constant", value_t=torch.tensor([2.0, 3.0, 4.0]))
        contents = table.node().t("value")
        return g.op("custom::ConstantContents", x, contents_f=contents.tolist())


case("contents_of_a_constant", lambda x: ConstantContents.apply(x), tensor(2, 3), domains=("custom",), migrates=False)
