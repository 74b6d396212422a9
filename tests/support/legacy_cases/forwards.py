"""autograd.Function: forwards that disagree, change their input, read contents, or take what is not there."""

import torch
from torch.autograd import Function

from legacy_cases.table import case, tensor


class DummyNms(Function):
    """A stand-in whose forward makes shapes only; the symbolic is the truth."""

    @staticmethod
    def forward(ctx, boxes, scores, limit):
        count = scores.shape[0]
        return torch.zeros(count, limit, 4), torch.zeros(count, limit)

    @staticmethod
    def symbolic(g, boxes, scores, limit):
        return g.op("TRT::EfficientNMS", boxes, scores, max_output_boxes_i=limit, outputs=2)


case(
    "dummy_forward",
    lambda x, y: DummyNms.apply(x, y, 5),
    tensor(2, 6, 4),
    tensor(2, 6, 3),
    domains=("TRT",),
)


class Disagrees(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def symbolic(g, x):
        return g.op("Cos", x)


case("symbolic_is_the_truth", lambda x: Disagrees.apply(x), tensor(2, 3), runs=True, reference=torch.cos)


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2).add_(1)

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::InPlace", x)


case("in_place", lambda x: InPlace.apply(x.exp()), tensor(2, 3), domains=("custom",), migrates=False)


class ReadsContents(Function):
    """The tutorials' resize: its factor is an input of the node, and ``forward`` reads it."""

    @staticmethod
    def forward(ctx, x, scales):
        scales = scales.tolist()[-2:]
        return torch.nn.functional.interpolate(x, scale_factor=scales, mode="nearest")

    @staticmethod
    def symbolic(g, x, scales):
        empty = g.op("Constant", value_t=torch.tensor([], dtype=torch.float32))
        return g.op(
            "Resize",
            x,
            empty,
            scales,
            coordinate_transformation_mode_s="asymmetric",
            mode_s="nearest",
            nearest_mode_s="floor",
        )


case(
    "tolist",
    lambda x, y: ReadsContents.apply(x, y),
    tensor(1, 1, 4, 4),
    torch.tensor([1.0, 1.0, 2.0, 2.0]),
    dynamic=False,
    runs=True,
    alone=True,
)


class WithBackward(Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        return x.clamp(max=limit).relu()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > 0), None

    @staticmethod
    def symbolic(g, x, limit):
        top = g.op("Constant", value_t=torch.tensor(limit, dtype=torch.float32))
        return g.op("Relu", g.op("Min", x, top))


case("with_backward", lambda x: WithBackward.apply(x, 1.0), tensor(2, 3), runs=True)


class OptionalTensor(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y = x @ weight
        return y if bias is None else y + bias

    @staticmethod
    def symbolic(g, x, weight, bias):
        inputs = [x, weight] if bias is None else [x, weight, bias]
        return g.op("custom::OptionalTensor", *inputs)


case(
    "optional_tensor_absent",
    lambda x, y: OptionalTensor.apply(x, y, None),
    tensor(2, 3),
    tensor(3, 4),
    domains=("custom",),
    dynamic=False,
)
case(
    "optional_tensor_present",
    lambda x, y, z: OptionalTensor.apply(x, y, z),
    tensor(2, 3),
    tensor(3, 4),
    tensor(4),
    domains=("custom",),
    dynamic=False,
)


class TensorList(Function):
    @staticmethod
    def forward(ctx, size, *levels):
        return sum(level.sum() for level in levels) + torch.zeros(size)

    @staticmethod
    def symbolic(g, size, *levels):
        return g.op("custom::TensorList", *levels, size_i=size)


case(
    "number_before_tensors",
    lambda x, y: TensorList.apply(4, x, y),
    tensor(2, 3),
    tensor(2, 5),
    oracle=False,
    graph=("custom::TensorList[0]{size=4}(input 0, input 1)",),
    domains=("custom",),
)
