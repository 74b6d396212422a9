"""Functions and registrations in the forms that training code and export tools give them."""

import functools

import torch
from torch.autograd import Function
from torch.autograd.function import InplaceFunction, once_differentiable
from torch.onnx import register_custom_op_symbolic

from legacy_cases.table import case, tensor

MARKER = "https://github.com/quic/aimet/blob/603e2d6021e7/TrainingExtensions/torch/src/python/aimet_torch/onnx_utils.py"
MMDEPLOY = "https://github.com/open-mmlab/mmdeploy/blob/3f8604bd72e8/mmdeploy/"
DETECTRON = "https://github.com/facebookresearch/detectron2/blob/3d3e66416b40/detectron2/layers/wrappers.py"


class Mixed(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    @once_differentiable
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        return gradient, None

    @staticmethod
    def symbolic(g, x, factor):
        return g.op("custom::Mixed", x, factor_i=factor)


case("forward_with_autocast", lambda x: Mixed.apply(x, 3), tensor(2, 3), domains=("custom",), migrates=False)


class UniformQuantize(InplaceFunction):
    @classmethod
    def forward(cls, ctx, x, bits=8, inplace=False):
        ctx.inplace = inplace
        if ctx.inplace:
            ctx.mark_dirty(x)
        else:
            x = x.clone()
        return x.mul_(2**bits - 1).round_().div_(2**bits - 1)

    @classmethod
    def symbolic(cls, g, x, bits=8, inplace=False):
        return g.op("custom::UniformQuantize", x, bits_i=bits)


for _inplace in (False, True):
    case(
        f"inplace_function_{'that_changes_its_input' if _inplace else 'that_copies'}",
        lambda x, inplace=_inplace: UniformQuantize.apply(x.exp(), 4, inplace) + 1,
        tensor(2, 3),
        domains=("custom",),
        migrates=False,
    )


class Marker(Function):
    @staticmethod
    def symbolic(g, x, identifier, start):
        return g.op("custom::Marker", x, id_s=identifier, start_s=start)

    @staticmethod
    def forward(ctx, x, identifier, start):
        return x.detach()


case(
    "markers_around_a_node",
    lambda x: Marker.apply(torch.relu(Marker.apply(x, "relu", "True")), "relu", "False"),
    tensor(2, 3),
    domains=("custom",),
    migrates=False,
    source=MARKER,
)


def _named(g, x, name="plain"):
    return g.op("custom::Asinh", x, name_s=name)


class Registered:
    def __call__(self, g, x):
        return g.op("custom::Called", x)

    def method(self, g, x):
        return g.op("custom::Method", x)


for _name, _symbolic in {
    "a_partial_function": functools.partial(_named, name="partial"),
    "a_lambda": lambda g, x: g.op("custom::Lambda", x),
    "an_object": Registered(),
    "a_method": Registered().method,
}.items():
    case(
        f"registered_{_name}",
        lambda x: x.asinh(),
        tensor(2, 3),
        setup=lambda symbolic=_symbolic: register_custom_op_symbolic("aten::asinh", symbolic, 11),
        undo=[("aten::asinh", 11)],
        domains=("custom",),
        migrates=False,
        alone=True,
    )


def _of_the_tracer(x):
    return x.exp() if torch._C._get_tracing_state() else x.sin()


case(
    "asks_for_the_state_of_the_tracer",
    _of_the_tracer,
    tensor(2, 3),
    reference=torch.exp,
    runs=True,
    migrates=False,
    source=DETECTRON,
)


class OfALevel(Function):
    """Its result is computed before, while the tracer is off."""

    output = None

    @staticmethod
    def forward(ctx, x):
        return OfALevel.output

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::OfALevel", x)


def _with_the_tracer_off(x):
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    OfALevel.output = x.cos()
    torch._C._set_tracing_state(state)
    return OfALevel.apply(x)


case(
    "turns_the_tracer_off",
    _with_the_tracer_off,
    tensor(2, 3),
    domains=("custom",),
    migrates=False,
    source=f"{MMDEPLOY}codebase/mmdet/models/roi_heads/single_level_roi_extractor.py",
)
