"""torchvision's operators by registered symbolics. Empty where torchvision is missing."""

import torch
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

try:
    import torchvision
except ImportError:
    torchvision = None


@parse_args("v", "v", "v", "v", "v", "i", "i", "i", "i", "i", "i", "i", "i", "none")
def deform_conv2d(
    g, x, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups, offset_groups, use_mask
):
    return g.op("custom::deform_conv2d", x, offset)


@parse_args("v", "v", "v", "v", "v", "i", "i", "i", "i", "i", "i", "i", "i", "b")
def whole_deform_conv2d(
    g, x, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups, offset_groups, use_mask
):
    return g.op(
        "custom::whole_deform_conv2d",
        x,
        weight,
        offset,
        mask,
        bias,
        strides_i=[stride_h, stride_w],
        pads_i=[pad_h, pad_w],
        dilations_i=[dil_h, dil_w],
        groups_i=groups,
        offset_groups_i=offset_groups,
        use_mask_i=use_mask,
    )


@parse_args("v", "v", "f", "i", "i", "i", "b")
def roi_align(g, x, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    return g.op(
        "mmcv::MMCVRoiAlign",
        x,
        rois,
        output_height_i=pooled_height,
        output_width_i=pooled_width,
        spatial_scale_f=spatial_scale,
        sampling_ratio_i=sampling_ratio,
        mode_s="avg",
        aligned_i=aligned,
    )


@parse_args("v", "v", "f")
def nms(g, boxes, scores, iou_threshold):
    return g.op("mmcv::NonMaxSuppression", boxes, scores, iou_threshold_f=iou_threshold)


def register_deform_conv2d():
    register_custom_op_symbolic("torchvision::deform_conv2d", deform_conv2d, 9)


def register_whole_deform_conv2d():
    register_custom_op_symbolic("torchvision::deform_conv2d", whole_deform_conv2d, 9)


def register_roi_align():
    register_custom_op_symbolic("torchvision::roi_align", roi_align, 16)


def register_nms():
    register_custom_op_symbolic("torchvision::nms", nms, 11)


if torchvision is not None:
    WEIGHT, BIAS, MASK = torch.ones(2, 2, 3, 3), torch.zeros(2), torch.ones(1, 9, 5, 5)

    case(
        "deform_conv2d_of_two_inputs",
        lambda x, y: torchvision.ops.deform_conv2d(x, y, WEIGHT),
        tensor(1, 2, 5, 5),
        tensor(1, 18, 3, 3),
        setup=register_deform_conv2d,
        undo=[("torchvision::deform_conv2d", 9)],
        domains=("custom",),
        dynamic=False,
    )
    case(
        "deform_conv2d_of_all_inputs",
        lambda x, y: torchvision.ops.deform_conv2d(x, y, WEIGHT, BIAS, padding=1, mask=MASK),
        tensor(1, 2, 5, 5),
        tensor(1, 18, 5, 5),
        setup=register_whole_deform_conv2d,
        undo=[("torchvision::deform_conv2d", 9)],
        domains=("custom",),
        dynamic=False,
        alone=True,
    )
    case(
        "roi_align",
        lambda x, y: torchvision.ops.roi_align(x, y, (3, 3), 0.5, 2, True),
        tensor(1, 2, 8, 8),
        torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0], [0.0, 1.0, 1.0, 7.0, 5.0]]),
        setup=register_roi_align,
        undo=[("torchvision::roi_align", 16)],
        domains=("mmcv",),
        dynamic=False,
    )
    case(
        "nms",
        lambda x, y: torchvision.ops.nms(x, y, 0.5),
        torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.9, 1.0], [2.0, 2.0, 3.0, 3.0]]),
        torch.tensor([0.5, 0.75, 0.25]),
        setup=register_nms,
        undo=[("torchvision::nms", 11)],
        domains=("mmcv",),
        dynamic=False,
    )
