"""torchvision's own symbolic functions of standard nodes. Empty where torchvision is missing."""

import sys

import torch
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

TORCHVISION = "https://github.com/pytorch/vision/blob/17de30d3bf1c/torchvision/ops/_register_onnx_ops.py"

try:
    import torchvision
except ImportError:
    torchvision = None


@parse_args("v", "v", "f")
def multi_label_nms(g, boxes, scores, iou_threshold):
    from torch.onnx.symbolic_opset9 import select, squeeze, unsqueeze

    boxes, scores = unsqueeze(g, boxes, 0), unsqueeze(g, unsqueeze(g, scores, 0), 0)
    most = g.op("Constant", value_t=torch.tensor([sys.maxsize], dtype=torch.long))
    iou_threshold = g.op("Constant", value_t=torch.tensor([iou_threshold], dtype=torch.float))
    found = g.op("NonMaxSuppression", boxes, scores, most, iou_threshold)
    return squeeze(g, select(g, found, 1, g.op("Constant", value_t=torch.tensor([2], dtype=torch.long))), 1)


@parse_args("v", "v", "f", "i", "i")
def roi_pool(g, input, rois, spatial_scale, pooled_height, pooled_width):
    pooled = g.op(
        "MaxRoiPool", input, rois, pooled_shape_i=(pooled_height, pooled_width), spatial_scale_f=spatial_scale
    )
    return pooled, None


def register_multi_label_nms():
    register_custom_op_symbolic("torchvision::nms", multi_label_nms, 12)


def register_roi_pool():
    register_custom_op_symbolic("torchvision::roi_pool", roi_pool, 12)


if torchvision is not None:
    case(
        "torchvision_nms_of_standard_nodes",
        lambda x, y: torchvision.ops.nms(x, y, 0.25),
        torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.9, 1.0], [2.0, 2.0, 3.0, 3.0]]),
        torch.tensor([0.5, 0.75, 0.25]),
        setup=register_multi_label_nms,
        undo=[("torchvision::nms", 12)],
        dynamic=False,
        opset=12,
        migrates=False,
        alone=True,
        source=TORCHVISION,
    )
    case(
        "torchvision_roi_pool_without_its_second_result",
        lambda x, y: torchvision.ops.roi_pool(x, y, (2, 2), 0.5),
        tensor(1, 2, 8, 8),
        torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0], [0.0, 1.0, 1.0, 7.0, 5.0]]),
        setup=register_roi_pool,
        undo=[("torchvision::roi_pool", 12)],
        dynamic=False,
        alone=True,
        migrates=False,
        source=TORCHVISION,
    )
