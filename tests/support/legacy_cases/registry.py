"""torch.onnx.symbolic_registry, as it was before torch 1.13 (importable with the bridge on); opset choice."""

import torch
from torch.onnx import register_custom_op_symbolic

from legacy_cases.table import case, tensor


def acosh(g, x):
    one = g.op("Constant", value_t=torch.tensor(1.0))
    return g.op("Log", g.op("Add", x, g.op("Sqrt", g.op("Sub", g.op("Mul", x, x), one))))


def register_acosh():
    from torch.onnx.symbolic_registry import register_op

    register_op("acosh", acosh, "", 9)


def register_acosh_for_the_oracle():
    register_custom_op_symbolic("aten::acosh", acosh, 9)


case(
    "register_op",
    lambda x: x.acosh(),
    tensor(2, 3, low=1.5, high=4.0),
    setup=register_acosh,
    oracle_setup=register_acosh_for_the_oracle,
    undo=[("aten::acosh", 9)],
    runs=True,
)


def register_atanh_on_what_is_there():
    from torch.onnx.symbolic_registry import get_registered_op, is_registered_op, register_op

    assert is_registered_op("relu", "", 9)
    relu = get_registered_op("relu", "", 9)

    def atanh(g, x):
        return g.op("custom::Atanh", relu(g, x))

    register_op("atanh", atanh, "", 9)


def register_atanh_for_the_oracle():
    from torch.onnx import symbolic_opset9

    def atanh(g, x):
        return g.op("custom::Atanh", symbolic_opset9.relu(g, x))

    register_custom_op_symbolic("aten::atanh", atanh, 9)


case(
    "get_registered_op",
    lambda x: x.atanh(),
    tensor(2, 3, low=-0.9, high=0.9),
    setup=register_atanh_on_what_is_there,
    oracle_setup=register_atanh_for_the_oracle,
    undo=[("aten::atanh", 9)],
    domains=("custom",),
    migrates=False,
)


def old_layer_norm(g, x, sizes, weight, bias, eps, cudnn):
    return g.op("custom::OldLayerNorm", x, weight, bias)


def register_old_layer_norm():
    # torch's own is of opset 17, and was preferred to this one by the old exporter. The user's counts.
    register_custom_op_symbolic("aten::layer_norm", old_layer_norm, 14)


case(
    "older_than_torchs_own",
    lambda x, y, z: torch.nn.functional.layer_norm(x, (3,), y, z, 0.25),
    tensor(2, 3),
    tensor(3),
    tensor(3),
    setup=register_old_layer_norm,
    undo=[("aten::layer_norm", 14)],
    oracle=False,
    graph=("custom::OldLayerNorm[0]{}(input 0, input 1, input 2)",),
    domains=("custom",),
    dynamic=False,
    alone=True,
)
