"""Buffers of the exported module that a symbolic function reads or converts, and what a ``forward`` may ask."""

import torch
from torch.autograd import Function
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

SOURCES = (
    "https://github.com/pulp-platform/quantlib/blob/d3c829ea74fd/algorithms/pact/pact_ops.py",
    "https://github.com/ModelTC/MQBench/blob/00f477d58ef6/mqbench/fake_quantize/dsq.py",
    "https://github.com/openppl-public/ppl.pmx/blob/e80a02c1cdee/torch_function/Reshape.py",
    "https://github.com/openppl-public/ppl.pmx/blob/e80a02c1cdee/torch_function/RotaryPositionEmbedding.py",
    "https://github.com/NVIDIA-AI-IOT/Lidar_AI_Solution/blob/787ad9549d25/CUDA-V2XFusion/scripts/export_v2xfusion.py",
)


class Threshold(Function):
    """Its limits are attributes."""

    @staticmethod
    @parse_args("v", "t", "t")
    def symbolic(g, x, low, high):
        return g.op("pact::Threshold", x, low_t=low, high_t=high)

    @staticmethod
    def forward(ctx, x, low, high):
        return (x >= high).to(x.dtype) - (x < low).to(x.dtype)


class Thresholds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", tensor(3, 1))
        self.high = torch.nn.Parameter(tensor(3, 1) + 3)

    def forward(self, x):
        return Threshold.apply(x, self.low.data.type_as(x), self.high.data)


class Grid(Function):
    """Its zero point is a buffer of another type than that of the node."""

    @staticmethod
    def symbolic(g, x, scale, zero, axis):
        zero = g.op("Cast", zero, to_i=torch.onnx.TensorProtoDataType.INT8)
        quantized = g.op("QuantizeLinear", x, scale, zero, axis_i=axis)
        return g.op("DequantizeLinear", quantized, scale, zero, axis_i=axis)

    @staticmethod
    def forward(ctx, x, scale, zero, axis):
        return (torch.round(x / scale) + zero).clamp(-128, 127) * scale - zero * scale


class Grids(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.1, 0.2, 0.3]))
        self.register_buffer("zero", torch.tensor([0, 1, 2], dtype=torch.int32))

    def forward(self, x):
        return Grid.apply(x, self.scale, self.zero, 1)


class Shaped(Function):
    """It takes the new shape as a tensor, where 0 keeps the size of the input."""

    @staticmethod
    def symbolic(g, x, shape):
        return g.op("pmx::Reshape", x, shape)

    @staticmethod
    def forward(ctx, x, shape):
        sizes = shape.tolist()
        return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(sizes)])


class Rotary(Function):
    """Its forward computes only where nothing is exported."""

    @staticmethod
    def symbolic(g, query, key, start):
        return g.op("pmx::Rotary", query, key, start, outputs=2)

    @staticmethod
    def forward(ctx, query, key, start):
        if torch.onnx.is_in_onnx_export():
            return query.clone(), key.clone()
        position = start.item()
        return query * position, key * position


class Pillars(Function):
    """Its forward is written for the tracer."""

    @staticmethod
    def symbolic(g, x):
        return g.op("v2x::Pillars", x)

    @staticmethod
    def forward(ctx, x):
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)
        try:
            if state is None:
                raise NotImplementedError
            return x.sum(1)
        finally:
            torch._C._set_tracing_state(state)


for _name, _forward, _inputs, _source in (
    ("data_of_weights", Thresholds(), (tensor(2, 3, 4),), SOURCES[0]),
    ("cast_of_a_buffer", Grids(), (tensor(2, 3),), SOURCES[1]),
    ("shape_in_a_tensor", lambda x: Shaped.apply(x, torch.tensor([0, 2, -1])) * 2, (tensor(3, 8),), SOURCES[2]),
    (
        "forward_of_an_export",
        lambda x, y: Rotary.apply(x, y, torch.tensor(2)),
        (tensor(2, 3), tensor(2, 3)),
        SOURCES[3],
    ),
):
    # A model that reads .data is traced below autograd, where the contents of constants are not known.
    _alone = _name == "shape_in_a_tensor"
    case(_name, _forward, *_inputs, source=_source, domains=("pact", "pmx"), migrates=False, alone=_alone)

case(
    "forward_of_a_trace",
    lambda x: Pillars.apply(x),
    tensor(2, 3, 4),
    source=SOURCES[4],
    domains=("v2x",),
    migrates=False,
    reference=lambda x: x.sum(1),
)
