"""Functions of parallel training, whose symbolic hands the input on: Megatron-LM, DeepSpeed."""

import torch
from torch.autograd import Function

from legacy_cases.table import case, tensor

MEGATRON = "https://github.com/NVIDIA/Megatron-LM/blob/d98e8a64ddf3/megatron/core/tensor_parallel/mappings.py"
DEEPSPEED = "https://github.com/microsoft/DeepSpeed/blob/38327e07f6cd/deepspeed/"

LINEAR = torch.nn.Linear(3, 3).requires_grad_(False)
LINEAR.load_state_dict({"weight": tensor(3, 3), "bias": tensor(3)})


class Group:
    def size(self):
        return 1


GROUP = Group()


def _reduce(value, group):
    if group is None or group.size() == 1:
        return value
    return torch.distributed.all_reduce(value.contiguous(), group=group)


class CopyToRegion(Function):
    @staticmethod
    def symbolic(graph, input_, group):
        """For tracing."""
        return input_

    @staticmethod
    def forward(ctx, input_, group):
        ctx.group = group
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return _reduce(grad_output, ctx.group), None


class ReduceFromRegion(Function):
    @staticmethod
    def symbolic(graph, input_, group):
        """For tracing."""
        return _reduce(input_, group)

    @staticmethod
    def forward(ctx, input_, group):
        return _reduce(input_, group)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class ScatterToRegion(Function):
    @staticmethod
    def symbolic(graph, input_, group):
        return _reduce(input_, group)

    @staticmethod
    def forward(ctx, input_, group):
        return input_.clone()


for _name, _region in (
    ("copy", lambda x: CopyToRegion.apply(x, GROUP)),
    ("reduce", lambda x: ReduceFromRegion.apply(x, GROUP)),
    ("scatter", lambda x: ScatterToRegion.apply(x, GROUP)),
):
    case(
        f"parallel_{_name}_before_a_node",
        lambda x, f=_region: f(x).exp(),
        tensor(2, 3),
        runs=True,
        source=MEGATRON,
    )
    case(
        f"parallel_{_name}_after_a_node",
        lambda x, f=_region: f(x.exp()),
        tensor(2, 3),
        runs=True,
        source=MEGATRON,
    )

case(
    "parallel_linear_between_two_regions",
    lambda x: ReduceFromRegion.apply(LINEAR(CopyToRegion.apply(x, GROUP)), GROUP) * 2,
    tensor(2, 3),
    runs=True,
    migrates=False,
    source=MEGATRON,
)


class Reversed(Function):
    """The group is the first argument."""

    @staticmethod
    def symbolic(graph, group, input):
        return input

    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        return input if group is None else _reduce(input, group)


case(
    "parallel_without_a_group",
    lambda x: Reversed.apply(None, x.exp()).neg(),
    tensor(2, 3),
    runs=True,
    source=f"{DEEPSPEED}module_inject/layers.py",
)


class Gather(Function):
    @staticmethod
    def symbolic(graph, input_, dim):
        return graph.op("Identity", input_)

    @staticmethod
    def forward(ctx, input_, dim):
        ctx.dim = dim
        return input_ * 1


case(
    "parallel_identity_of_its_own",
    lambda x: Gather.apply(x.exp(), 0).neg(),
    tensor(2, 3),
    oracle=False,
    graph=("::Neg[0]{}(::Exp[0]{}(input 0))",),
    runs=True,
    source=f"{DEEPSPEED}moe/mappings.py",
)
