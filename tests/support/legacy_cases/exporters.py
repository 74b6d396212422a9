"""Symbolic functions in the manner of real exporters: detection libraries, and plugins of inference engines."""

import torch
from torch.autograd import Function
from torch.onnx import symbolic_helper as sym_help
from torch.onnx import symbolic_opset9

from legacy_cases.table import case, tensor


class GroupNormPlugin(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        return torch.nn.functional.group_norm(x, 2, weight, bias)

    @staticmethod
    def symbolic(g, x, weight, bias):
        assert isinstance(x, torch._C.Value)
        assert isinstance(x.type(), torch._C.TensorType)
        channels, rank = sym_help._get_tensor_dim_size(x, 1), sym_help._get_tensor_rank(x)
        assert channels % 2 == 0
        dtype = getattr(torch, x.type().scalarType().lower())
        grouped = sym_help._reshape_helper(g, x, g.op("Constant", value_t=torch.LongTensor([0, 2, -1])))
        ones = g.op("Constant", value_t=torch.ones(2, dtype=dtype))
        zeros = g.op("Constant", value_t=torch.zeros(2, dtype=dtype))
        normed = g.op("InstanceNormalization", grouped, ones, zeros, epsilon_f=1e-5)
        normed = sym_help._reshape_helper(g, normed, g.op("Shape", x))
        axes = list(range(1, rank - 1))
        weight, bias = (sym_help._unsqueeze_helper(g, one, axes) for one in (weight, bias))
        return symbolic_opset9.add(g, symbolic_opset9.mul(g, normed, weight), bias)


case(
    "exporter_group_norm",
    lambda x: GroupNormPlugin.apply(x, torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])),
    tensor(2, 4, 3, 3),
    runs=True,
    migrates=False,
)


class AbsentInputs(Function):
    @staticmethod
    def forward(ctx, x):
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)

    @staticmethod
    def symbolic(g, x):
        nothing = sym_help._optional_input_placeholder_tensor(g)
        scales = g.op("Constant", value_t=torch.tensor([1.0, 1.0, 2.0, 2.0]))
        return g.op("Resize", x, nothing, scales, coordinate_transformation_mode_s="asymmetric", nearest_mode_s="floor")


case("exporter_absent_inputs", lambda x: AbsentInputs.apply(x), tensor(2, 2, 3, 3), runs=True)


class RawNode(Function):
    @staticmethod
    def forward(ctx, x):
        return x.mean(-1, keepdim=True) - x

    @staticmethod
    def symbolic(g, x):
        node = g.graph.insertNode(g.graph.create("custom::RawNode", [x], 1))
        node.f_("alpha", 2.0)
        node.s_("mode", "mean")
        node.is_("dims", [1, 2])
        node.output().setType(x.type())
        second = g.op("custom::Second", node.output())
        second.node().copyAttributes(node)
        return second


case("exporter_raw_node", lambda x: RawNode.apply(x), tensor(2, 3), domains=("custom",), migrates=False)


class ReplacedUses(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.minimum(x, -x)

    @staticmethod
    def symbolic(g, x):
        first = g.op("Relu", x)
        result = g.op("Neg", first)
        absolute = g.op("Abs", x)
        first.replaceAllUsesWith(absolute)
        result.node().moveAfter(absolute.node())
        return result


case("exporter_replaced_uses", lambda x: ReplacedUses.apply(x), tensor(2, 3), runs=True, migrates=False)


class GraphAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cosh()

    @staticmethod
    def symbolic(g, x):
        body = torch._C.Graph()
        inner = body.insertNode(body.create("onnx::Neg", [body.addInput("inside")], 1))
        body.registerOutput(inner.output())
        result = g.op("custom::GraphAttribute", x)
        result.node().g_("body", body)
        return result


case("exporter_graph_attribute", lambda x: GraphAttribute.apply(x), tensor(2, 3), domains=("custom",), migrates=False)


class PluginOutputs(Function):
    @staticmethod
    def forward(ctx, boxes, scores):
        batch = boxes.shape[0]
        return boxes.new_zeros(batch, 1, dtype=torch.int32), boxes[:, :2] * 2, scores[:, :2].amax(-1)

    @staticmethod
    def symbolic(g, boxes, scores):
        results = g.op(
            "TRT::EfficientNMS_TRT",
            boxes,
            scores,
            background_class_i=-1,
            iou_threshold_f=0.45,
            plugin_version_s="1",
            score_threshold_f=0.25,
            outputs=3,
        )
        sizes = [boxes.type().varyingSizes()[0], 2, 4]
        return results[0], results[1].setType(boxes.type().with_sizes(sizes)), results[2]


case(
    "exporter_plugin_outputs",
    lambda boxes, scores: PluginOutputs.apply(boxes, scores),
    tensor(1, 5, 4),
    tensor(1, 5, 3),
    domains=("TRT",),
    migrates=False,
)
