"""autograd.Function: the shapes in which forward and symbolic are found."""

import torch
from torch.autograd import Function

from legacy_cases.table import case, tensor


class WithoutContext(Function):
    @staticmethod
    def forward(x, alpha):
        return x.sigmoid() * alpha

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def symbolic(g, x, alpha):
        return g.op("custom::WithoutContext", x, alpha_f=alpha)


case("setup_context", lambda x: WithoutContext.apply(x, 2.0), tensor(2, 3), domains=("custom",))


class ClassMethods(Function):
    scale = 3.0

    @classmethod
    def forward(cls, ctx, x):
        return x.tanh() * cls.scale

    @classmethod
    def symbolic(cls, g, x):
        return g.op("custom::ClassMethods", x, scale_f=cls.scale)


case("classmethods", lambda x: ClassMethods.apply(x), tensor(2, 3), domains=("custom",))


class Defaults(Function):
    @staticmethod
    def forward(ctx, x, alpha=0.5, bias=True):
        return x.cos() * alpha + int(bias)

    @staticmethod
    def symbolic(g, x, alpha=0.5, bias=True):
        return g.op("custom::Defaults", x, alpha_f=alpha, bias_i=bias)


case("defaults_left_out", lambda x: Defaults.apply(x), tensor(2, 3), domains=("custom",))
case(
    "defaults_given",
    lambda x: Defaults.apply(x, 0.75, False),
    tensor(2, 3),
    oracle=False,
    graph=("custom::Defaults[0]{alpha=0.75, bias=0}(input 0)",),
    domains=("custom",),
)


class StarredSymbolic(Function):
    @staticmethod
    def forward(ctx, x, y, alpha):
        return x.exp() + y * alpha

    @staticmethod
    def symbolic(g, *args):
        x, y, alpha = args
        return g.op("custom::Starred", x, y, alpha_f=alpha)


case(
    "starred_symbolic",
    lambda x, y: StarredSymbolic.apply(x, y, 2.0),
    tensor(2, 3),
    tensor(2, 3),
    domains=("custom",),
)


class StarredForward(Function):
    @staticmethod
    def forward(ctx, *tensors):
        return torch.stack(tensors, 1).sum(1)

    @staticmethod
    def symbolic(g, *tensors):
        return g.op("Sum", *tensors)


case(
    "starred_forward",
    lambda x, y, z: StarredForward.apply(x, y, z),
    tensor(2, 3),
    tensor(2, 3),
    tensor(2, 3),
    runs=True,
)


class ExtraDefaulted(Function):
    @staticmethod
    def forward(ctx, x):
        return x.abs() + 1

    @staticmethod
    def symbolic(g, x, shift=1.0):
        return g.op("Add", g.op("Abs", x), g.op("Constant", value_t=torch.tensor(shift)))


case("symbolic_with_an_extra_default", lambda x: ExtraDefaulted.apply(x), tensor(2, 3), runs=True)


class Config:
    def __init__(self, alpha, name):
        self.alpha = alpha
        self.name = name


class OddArguments(Function):
    @staticmethod
    def forward(ctx, x, config, options, sizes, dtype, nothing, function):
        return function(x) * config.alpha + options["shift"] + sum(sizes)

    @staticmethod
    def symbolic(g, x, config, options, sizes, dtype, nothing, function):
        assert nothing is None
        assert dtype is torch.float32
        assert function is torch.sin
        return g.op(
            "custom::OddArguments", x, alpha_f=config.alpha, name_s=config.name, shift_f=options["shift"], sizes_i=sizes
        )


CONFIG = Config(2.0, "wide")

case(
    "odd_arguments",
    lambda x: OddArguments.apply(x, CONFIG, {"shift": 0.5}, [1, 2], torch.float32, None, torch.sin),
    tensor(2, 3),
    domains=("custom",),
)

LINEAR = torch.nn.Linear(3, 3)


class ModuleArgument(Function):
    @staticmethod
    def forward(ctx, x, module):
        return module(x)

    @staticmethod
    def symbolic(g, x, module):
        return g.op("custom::ModuleArgument", x, in_features_i=module.in_features, bias_i=module.bias is not None)


case(
    "module_argument",
    lambda x: ModuleArgument.apply(x, LINEAR),
    tensor(2, 3),
    oracle=False,
    graph=("custom::ModuleArgument[0]{bias=1, in_features=3}(input 0)",),
    domains=("custom",),
)


def make_function(exponent):
    class Power(Function):
        @staticmethod
        def forward(ctx, x):
            return x.abs() ** exponent

        @staticmethod
        def symbolic(g, x):
            size = g.op("Max", x, g.op("Neg", x))
            return g.op("Pow", size, g.op("Constant", value_t=torch.tensor(exponent)))

    return Power.apply


square, cube = make_function(2.0), make_function(3.0)

case("closures", lambda x: square(x) + cube(x), tensor(2, 3), runs=True, migrates=False)


class AtRunTime(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin().abs()


def _late_symbolic(g, x):
    return g.op("custom::AtRunTime", x)


AtRunTime.symbolic = staticmethod(_late_symbolic)

case("symbolic_at_run_time", lambda x: AtRunTime.apply(x), tensor(2, 3), domains=("custom",))


class BoundEarly(Function):
    @staticmethod
    def forward(ctx, x):
        return x.atan() + 1

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::BoundEarly", x)


bound_early = BoundEarly.apply

case("apply_bound_at_import", lambda x: bound_early(x), tensor(2, 3), domains=("custom",))


class ReturnsItsInput(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def symbolic(g, x):
        return x


case("returns_its_input", lambda x: ReturnsItsInput.apply(x.relu()).neg(), tensor(2, 3), runs=True)


class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        return x.erf()

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::Inner", x)


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        return Inner.apply(x) + 1

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::Outer", x)


case("nested", lambda x: Outer.apply(x), tensor(2, 3), domains=("custom",))
case("both_levels", lambda x: Outer.apply(Inner.apply(x)), tensor(2, 3), domains=("custom",))


class PlainOuter(Function):
    @staticmethod
    def forward(ctx, x):
        return Inner.apply(x).neg()


case(
    "inner_of_a_plain_one",
    lambda x: PlainOuter.apply(x),
    tensor(2, 3),
    oracle=False,
    graph=("::Neg[0]{}(custom::Inner[0]{}(input 0))",),
    domains=("custom",),
)


class TwiceUsed(Function):
    @staticmethod
    def forward(ctx, x, times):
        return x * times + 0.5

    @staticmethod
    def symbolic(g, x, times):
        return g.op("custom::TwiceUsed", x, times_i=times)


case(
    "used_twice",
    lambda x: TwiceUsed.apply(TwiceUsed.apply(x, 2), 3),
    tensor(2, 3),
    domains=("custom",),
)
