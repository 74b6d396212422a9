"""register_custom_op_symbolic: namespaces, opset choice, overloads, overrides of what torch maps itself."""

import torch
from torch.onnx import register_custom_op_symbolic, symbolic_helper
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

LIBRARY = torch.library.Library("legacy_cases", "DEF")
LIBRARY.define("scale(Tensor x, float alpha, int[] sizes) -> Tensor")
LIBRARY.define("split_two(Tensor x) -> (Tensor, Tensor)")
LIBRARY.define("join(Tensor[] xs, Tensor? bias=None) -> Tensor")
LIBRARY.define("mode(Tensor x, str mode='wide', bool flag=False) -> Tensor")
LIBRARY.define("plain(Tensor x) -> Tensor")
LIBRARY.impl("scale", lambda x, alpha, sizes: x * alpha + sum(sizes), "CompositeExplicitAutograd")
LIBRARY.impl("split_two", lambda x: (x.sin(), x.cos()), "CompositeExplicitAutograd")
LIBRARY.impl(
    "join", lambda xs, bias=None: torch.cat(xs, 1) if bias is None else torch.cat(xs, 1) + bias,
    "CompositeExplicitAutograd",
)  # fmt: skip
LIBRARY.impl("mode", lambda x, mode="wide", flag=False: x.tanh() + int(flag), "CompositeExplicitAutograd")
LIBRARY.impl("plain", lambda x: x.cos() + 1, "CompositeExplicitAutograd")


def asinh(g, x):
    one = g.op("Constant", value_t=torch.tensor(1.0))
    root = g.op("Sqrt", g.op("Add", g.op("Mul", x, x), one))
    return g.op("Log", g.op("Add", x, root))


def register_asinh():
    register_custom_op_symbolic("aten::asinh", asinh, 9)


case("aten_override", lambda x: x.asinh(), tensor(2, 3), setup=register_asinh, undo=[("aten::asinh", 9)], runs=True)


def hardswish(g, x):
    return g.op("custom::Swish", x)


def register_hardswish():
    torch.onnx.register_custom_op_symbolic("aten::hardswish", hardswish, 18)


case(
    "aten_override_by_a_custom_node",
    lambda x: torch.nn.functional.hardswish(x),
    tensor(2, 3),
    setup=register_hardswish,
    undo=[("aten::hardswish", 18)],
    domains=("custom",),
)


@parse_args("v", "i")
def logcumsumexp(g, x, dim):
    return g.op("Log", g.op("CumSum", g.op("Exp", x), g.op("Constant", value_t=torch.tensor(dim))))


def register_logcumsumexp():
    register_custom_op_symbolic("aten::logcumsumexp", logcumsumexp, 11)


case(
    "aten_that_torch_does_not_map",
    lambda x: torch.logcumsumexp(x, 1),
    tensor(2, 3),
    setup=register_logcumsumexp,
    undo=[("aten::logcumsumexp", 11)],
    runs=True,
)


@parse_args("v", "f", "is")
def scale(g, x, alpha, sizes):
    return g.op("custom::Scale", x, alpha_f=alpha, sizes_i=sizes)


def register_scale():
    register_custom_op_symbolic("legacy_cases::scale", scale, 9)


case(
    "own_operator",
    lambda x: torch.ops.legacy_cases.scale(x, 0.5, [3, 4]),
    tensor(2, 3),
    setup=register_scale,
    undo=[("legacy_cases::scale", 9)],
    domains=("custom",),
)


def split_two(g, x):
    return g.op("Sin", x), g.op("Cos", x)


def register_split_two():
    register_custom_op_symbolic("legacy_cases::split_two", split_two, 9)


case(
    "own_operator_of_two_outputs",
    lambda x: torch.ops.legacy_cases.split_two(x),
    tensor(2, 3),
    setup=register_split_two,
    undo=[("legacy_cases::split_two", 9)],
    runs=True,
)


def join(g, xs, bias=None):
    tensors = symbolic_helper._unpack_list(xs)
    joined = g.op("Concat", *tensors, axis_i=1)
    if symbolic_helper._is_none(bias):
        return joined
    return g.op("Add", joined, bias)


def register_join():
    register_custom_op_symbolic("legacy_cases::join", join, 9)


case(
    "a_list_of_tensors",
    lambda x, y: torch.ops.legacy_cases.join([x, y]),
    tensor(2, 3),
    tensor(2, 4),
    setup=register_join,
    undo=[("legacy_cases::join", 9)],
    runs=True,
)
case(
    "an_optional_tensor",
    lambda x, y, z: torch.ops.legacy_cases.join([x, y], z),
    tensor(2, 3),
    tensor(2, 4),
    tensor(2, 7),
    setup=register_join,
    undo=[("legacy_cases::join", 9)],
    runs=True,
)


@parse_args("v", "s", "b")
def mode(g, x, mode, flag):
    return g.op("custom::Mode", x, mode_s=mode, flag_i=flag)


def register_mode():
    register_custom_op_symbolic("legacy_cases::mode", mode, 9)


case(
    "defaults_of_the_schema",
    lambda x: torch.ops.legacy_cases.mode(x),
    tensor(2, 3),
    setup=register_mode,
    undo=[("legacy_cases::mode", 9)],
    domains=("custom",),
)
case(
    "keywords_of_the_schema",
    lambda x: torch.ops.legacy_cases.mode(x, flag=True),
    tensor(2, 3),
    setup=register_mode,
    undo=[("legacy_cases::mode", 9)],
    domains=("custom",),
)


def older(g, x):
    return g.op("custom::Older", x)


def newer(g, x):
    return g.op("custom::Newer", x)


def register_two_opsets():
    register_custom_op_symbolic("legacy_cases::plain", older, 11)
    register_custom_op_symbolic("legacy_cases::plain", newer, 19)


TWO_OPSETS = [("legacy_cases::plain", 11), ("legacy_cases::plain", 19)]

case(
    "the_older_of_two_opsets",
    lambda x: torch.ops.legacy_cases.plain(x),
    tensor(2, 3),
    setup=register_two_opsets,
    undo=TWO_OPSETS,
    domains=("custom",),
    migrates=False,
    alone=True,
)
case(
    "the_newer_of_two_opsets",
    lambda x: torch.ops.legacy_cases.plain(x),
    tensor(2, 3),
    setup=register_two_opsets,
    undo=TWO_OPSETS,
    domains=("custom",),
    opset=20,
    migrates=False,
    alone=True,
)


def unregister_the_newer():
    register_two_opsets()
    torch.onnx.unregister_custom_op_symbolic("legacy_cases::plain", 19)


case(
    "after_unregister",
    lambda x: torch.ops.legacy_cases.plain(x + 1),
    tensor(2, 3),
    setup=unregister_the_newer,
    undo=TWO_OPSETS[:1],
    domains=("custom",),
    opset=20,
    migrates=False,
    alone=True,
)


def grid_sampler(g, x, grid, mode, padding, aligned):
    return g.op("mmcv::grid_sampler", x, grid, interpolation_mode_i=0, padding_mode_i=0, align_corners_i=0)


def register_grid_sampler():
    # An empty namespace is aten.
    register_custom_op_symbolic("::grid_sampler", grid_sampler, 16)


case(
    "empty_namespace",
    lambda x, y: torch.nn.functional.grid_sample(x, y, align_corners=False),
    tensor(1, 2, 4, 4),
    tensor(1, 3, 3, 2, low=-1.0, high=1.0),
    setup=register_grid_sampler,
    undo=[("::grid_sampler", 16)],
    domains=("mmcv",),
    dynamic=False,
)


def layer_norm(g, x, sizes, weight, bias, eps, cudnn):
    eps = symbolic_helper._maybe_get_const(eps, "f")
    sizes = symbolic_helper._maybe_get_const(sizes, "is")
    return g.op("custom::LayerNorm", x, weight, bias, eps_f=eps, sizes_i=sizes)


def register_layer_norm():
    register_custom_op_symbolic("aten::layer_norm", layer_norm, 17)


case(
    "aten_that_is_decomposed",
    lambda x, y, z: torch.nn.functional.layer_norm(x, (3,), y, z, 0.25),
    tensor(2, 3),
    tensor(3),
    tensor(3),
    setup=register_layer_norm,
    undo=[("aten::layer_norm", 17)],
    domains=("custom",),
    dynamic=False,
)


def mean_value(g, x, *others):
    if len(others) == 1:
        return g.op("ReduceMean", x, keepdims_i=0)
    dims = symbolic_helper._maybe_get_const(others[0], "is")
    keep = symbolic_helper._maybe_get_const(others[1], "i")
    return g.op("custom::Mean", x, dims_i=dims, keep_i=keep)


def register_mean():
    register_custom_op_symbolic("aten::mean", mean_value, 18)


case(
    "every_overload",
    lambda x: (x.mean(), x.mean([1], keepdim=True)),
    tensor(2, 3),
    setup=register_mean,
    undo=[("aten::mean", 18)],
    domains=("custom",),
    migrates=False,
)


def in_place_add(g, x, y, alpha):
    return g.op("custom::Add", x, y)


def register_add():
    register_custom_op_symbolic("aten::add", in_place_add, 13)


case(
    "the_operator_behind_a_plus",
    lambda x, y: x.sin() + y,
    tensor(2, 3),
    tensor(2, 3),
    setup=register_add,
    undo=[("aten::add", 13)],
    domains=("custom",),
    alone=True,
)
