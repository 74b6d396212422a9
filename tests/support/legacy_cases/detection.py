"""Functions of detection libraries: mmcv, YOLOv7, TensorRT plugins of BEVFormer."""

import torch
from torch.autograd import Function
from torch.nn.modules.utils import _pair

from legacy_cases.table import case, tensor

MMCV = "https://github.com/open-mmlab/mmcv/blob/a8073c74bf83/mmcv/ops/"
YOLO = "https://github.com/WongKinYiu/yolov7/blob/a207844b1ce8/models/experimental.py"
BEV = "https://github.com/DerryHub/BEVFormer_tensorrt/blob/303d3140c140/det2trt/models/functions/"

IMAGE, ROIS = tensor(1, 4, 6, 6), torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0], [0.0, 1.0, 1.0, 5.0, 5.0]])
WEIGHT, BIAS = tensor(4, 4, 3, 3), tensor(4)


class BorderAlign(Function):
    @staticmethod
    def symbolic(g, input, boxes, pool_size):
        return g.op("mmcv::MMCVBorderAlign", input, boxes, pool_size_i=pool_size)

    @staticmethod
    def forward(ctx, input, boxes, pool_size):
        ctx.pool_size = pool_size
        ctx.input_shape = input.size()
        assert boxes.ndim == 3
        batch, channels, height, width = input.shape
        output = input.new_zeros(batch, channels // 4, height * width, 4)
        ctx.save_for_backward(boxes)
        return output


border_align = BorderAlign.apply

case(
    "border_align",
    lambda x, y: border_align(x, y, 10),
    IMAGE,
    tensor(1, 36, 4),
    domains=("mmcv",),
    dynamic=False,
    source=f"{MMCV}border_align.py",
)


class MaskedConv(Function):
    @staticmethod
    def symbolic(g, features, mask, weight, bias, padding, stride=1):
        return g.op("mmcv::MMCVMaskedConv2d", features, mask, weight, bias, padding_i=padding, stride_i=stride)

    @staticmethod
    def forward(ctx, features, mask, weight, bias, padding=0, stride=1):
        out = torch.nn.functional.conv2d(features, weight, bias, padding=padding, stride=stride)
        return out * (mask > 0)


case(
    "masked_conv_without_its_stride",
    lambda x, y: MaskedConv.apply(x, y, WEIGHT, BIAS, 1),
    IMAGE,
    tensor(1, 1, 6, 6),
    domains=("mmcv",),
    dynamic=False,
    source=f"{MMCV}masked_conv.py",
)


class ModulatedConv(Function):
    @staticmethod
    def symbolic(g, input, offset, mask, weight, bias, stride, padding, dilation, groups):
        tensors = [input, offset, mask, weight]
        if bias is not None:
            tensors.append(bias)
        return g.op(
            "mmcv::MMCVModulatedDeformConv2d",
            *tensors,
            stride_i=stride,
            padding_i=padding,
            dilation_i=dilation,
            groups_i=groups,
        )

    @staticmethod
    def forward(ctx, input, offset, mask, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        ctx.stride, ctx.padding = _pair(stride), _pair(padding)
        return torch.nn.functional.conv2d(input, weight, bias, stride, padding, dilation, groups) * mask


for _name, _bias in (("with_bias", BIAS), ("without_bias", None)):
    case(
        f"modulated_conv_{_name}",
        lambda x, y, z, bias=_bias: ModulatedConv.apply(x, y, z, WEIGHT, bias, (1, 1), (1, 1), (1, 1), 1),
        IMAGE,
        tensor(1, 18, 6, 6),
        tensor(1, 1, 6, 6),
        domains=("mmcv",),
        dynamic=False,
        source=f"{MMCV}modulated_deform_conv.py",
    )


class SoftNMS(Function):
    @staticmethod
    def forward(ctx, boxes, scores, iou_threshold, sigma, min_score, method, offset):
        detections = torch.cat([boxes, scores[:, None]], 1)
        return detections, torch.arange(boxes.shape[0])

    @staticmethod
    def symbolic(g, boxes, scores, iou_threshold, sigma, min_score, method, offset):
        return g.op(
            "mmcv::SoftNonMaxSuppression",
            boxes,
            scores,
            iou_threshold_f=float(iou_threshold),
            sigma_f=float(sigma),
            min_score_f=float(min_score),
            method_i=int(method),
            offset_i=int(offset),
            outputs=2,
        )


case(
    "soft_nms",
    lambda x, y: SoftNMS.apply(x, y, 0.3, 0.5, 1e-3, 1, 0),
    tensor(5, 4),
    tensor(5),
    domains=("mmcv",),
    dynamic=False,
    source=f"{MMCV}nms.py",
)


class PSAMask(Function):
    @staticmethod
    def symbolic(g, input, psa_type, mask_size):
        return g.op("mmcv::MMCVPSAMask", input, psa_type_i=psa_type, mask_size_i=mask_size)

    @staticmethod
    def forward(ctx, input, psa_type, mask_size):
        ctx.mask_size = _pair(mask_size)
        ctx.save_for_backward(input)
        height, width = input.shape[-2:]
        return input.new_zeros(input.shape[0], height * width, height, width)


case(
    "psa_mask",
    lambda x: PSAMask.apply(x, {"collect": 0, "distribute": 1}["collect"], _pair(3)),
    tensor(1, 9, 4, 4),
    domains=("mmcv",),
    dynamic=False,
    source=f"{MMCV}psa_mask.py",
)


class RotatedAlign(Function):
    @staticmethod
    def symbolic(g, input, rois, output_size, spatial_scale, sampling_ratio, aligned):
        if isinstance(output_size, int):
            height = width = output_size
        elif isinstance(output_size, tuple):
            height, width = output_size
        else:
            raise TypeError("output_size is an int or a tuple")
        return g.op(
            "mmcv::MMCVRoIAlignRotated",
            input,
            rois,
            output_height_i=height,
            output_width_i=width,
            spatial_scale_f=spatial_scale,
            sampling_ratio_i=sampling_ratio,
            aligned_i=aligned,
        )

    @staticmethod
    def forward(ctx, input, rois, output_size, spatial_scale, sampling_ratio=0, aligned=True):
        ctx.output_size = _pair(output_size)
        return input.new_zeros(rois.size(0), input.size(1), ctx.output_size[0], ctx.output_size[1])


for _name, _size in (("a_number", 3), ("a_pair", (2, 3))):
    case(
        f"rotated_align_of_{_name}",
        lambda x, y, size=_size: RotatedAlign.apply(x, y, size, 0.5, 2, True),
        IMAGE,
        ROIS,
        domains=("mmcv",),
        dynamic=False,
        migrates=False,
        source=f"{MMCV}roi_align_rotated.py",
    )


class RoIAlignOfStandardNodes(Function):
    @staticmethod
    def symbolic(g, input, rois, output_size, spatial_scale, sampling_ratio, pool_mode):
        from torch.onnx import TensorProtoDataType

        def select(x, dim, index):
            return g.op("Gather", x, index, axis_i=dim)

        batch = select(rois, 1, g.op("Constant", value_t=torch.tensor([0], dtype=torch.long)))
        batch = g.op("Cast", g.op("Squeeze", batch, axes_i=[1]), to_i=TensorProtoDataType.INT64)
        boxes = select(rois, 1, g.op("Constant", value_t=torch.tensor([1, 2, 3, 4], dtype=torch.long)))
        return g.op(
            "RoiAlign",
            input,
            boxes,
            batch,
            output_height_i=output_size[0],
            output_width_i=output_size[1],
            spatial_scale_f=spatial_scale,
            sampling_ratio_i=max(0, sampling_ratio),
            mode_s=pool_mode,
        )

    @staticmethod
    def forward(ctx, input, rois, output_size, spatial_scale, sampling_ratio, pool_mode):
        ctx.output_size = _pair(output_size)
        return input.new_zeros((rois.size(0), input.size(1), *ctx.output_size))


case(
    "roi_align_of_standard_nodes",
    lambda x, y: RoIAlignOfStandardNodes.apply(x, y, (2, 2), 1.0, 0, "avg"),
    IMAGE,
    ROIS,
    dynamic=False,
    opset=12,
    migrates=False,
    source=f"{MMCV}roi_align.py",
)


class RoIPool(Function):
    @staticmethod
    def symbolic(g, input, rois, output_size, spatial_scale):
        return g.op("MaxRoiPool", input, rois, pooled_shape_i=output_size, spatial_scale_f=spatial_scale)

    @staticmethod
    def forward(ctx, input, rois, output_size, spatial_scale=1.0):
        ctx.spatial_scale = spatial_scale
        return input.new_zeros((rois.size(0), input.size(1), *_pair(output_size)))


case(
    "roi_pool",
    lambda x, y: RoIPool.apply(x, y, (2, 2), 0.5),
    IMAGE,
    ROIS,
    dynamic=False,
    source=f"{MMCV}roi_pool.py",
)


class Carafe(Function):
    @staticmethod
    def symbolic(g, features, masks, kernel_size, group_size, scale_factor):
        return g.op(
            "mmcv::MMCVCARAFE",
            features,
            masks,
            kernel_size_i=kernel_size,
            group_size_i=group_size,
            scale_factor_f=scale_factor,
        )

    @staticmethod
    def forward(ctx, features, masks, kernel_size, group_size, scale_factor):
        assert scale_factor >= 1
        assert masks.size(1) == kernel_size * kernel_size * group_size
        up = torch.nn.functional.interpolate(features, scale_factor=scale_factor, mode="nearest")
        return up * masks.mean(1, keepdim=True)


case(
    "carafe",
    lambda x, y: Carafe.apply(x, y, 3, 1, 2),
    IMAGE,
    tensor(1, 9, 12, 12),
    domains=("mmcv",),
    dynamic=False,
    source=f"{MMCV}carafe.py",
)


class DeformRoIPool(Function):
    @staticmethod
    def symbolic(g, input, rois, offset, output_size, spatial_scale, sampling_ratio, gamma):
        return g.op(
            "mmcv::MMCVDeformRoIPool",
            input,
            rois,
            offset,
            pooled_height_i=output_size[0],
            pooled_width_i=output_size[1],
            spatial_scale_f=spatial_scale,
            sampling_ratio_f=sampling_ratio,
            gamma_f=gamma,
        )

    @staticmethod
    def forward(ctx, input, rois, offset, output_size, spatial_scale=1.0, sampling_ratio=0, gamma=0.1):
        if offset is None:
            offset = input.new_zeros(0)
        ctx.gamma = float(gamma)
        return input.new_zeros(rois.size(0), input.size(1), *output_size) + offset.sum() * gamma


case(
    "deform_roi_pool_with_an_integer_for_a_float",
    lambda x, y, z: DeformRoIPool.apply(x, y, z, (2, 2), 0.25, 0, 0.1),
    IMAGE,
    ROIS,
    tensor(2, 2),
    domains=("mmcv",),
    dynamic=False,
    source=f"{MMCV}deform_roi_pool.py",
)


class ORTNMS(Function):
    @staticmethod
    def forward(ctx, boxes, scores, max_boxes, iou_threshold, score_threshold):
        import random

        batch, found = scores.shape[0], random.randint(1, 100)
        batches = torch.randint(0, batch, (found,)).sort()[0]
        picked = torch.arange(100, 100 + found)
        return torch.cat([batches[None], torch.zeros(1, found, dtype=torch.int64), picked[None]], 0).T.contiguous()

    @staticmethod
    def symbolic(g, boxes, scores, max_boxes, iou_threshold, score_threshold):
        return g.op("NonMaxSuppression", boxes, scores, max_boxes, iou_threshold, score_threshold)


case(
    "yolo_nms_of_random_size",
    lambda x, y: ORTNMS.apply(x, y, torch.tensor([100]), torch.tensor([0.45]), torch.tensor([0.25])),
    tensor(1, 5, 4),
    tensor(1, 2, 5),
    dynamic=False,
    source=YOLO,
)


class TRTNMS(Function):
    @staticmethod
    def forward(ctx, boxes, scores, background=-1, iou=0.45, limit=100, version="1", threshold=0.25):
        batch, _, classes = scores.shape
        return (
            torch.randint(0, limit, (batch, 1), dtype=torch.int32),
            torch.randn(batch, limit, 4),
            torch.randn(batch, limit),
            torch.randint(0, classes, (batch, limit), dtype=torch.int32),
        )

    @staticmethod
    def symbolic(g, boxes, scores, background=-1, iou=0.45, limit=100, version="1", threshold=0.25):
        out = g.op(
            "TRT::EfficientNMS_TRT",
            boxes,
            scores,
            background_class_i=background,
            iou_threshold_f=iou,
            max_output_boxes_i=limit,
            plugin_version_s=version,
            score_threshold_f=threshold,
            outputs=4,
        )
        nums, boxes, scores, classes = out
        return nums, boxes, scores, classes


case(
    "yolo_plugin_nms",
    lambda x, y: TRTNMS.apply(x, y, -1, 0.5, 20, "1", 0.3),
    tensor(1, 5, 4),
    tensor(1, 5, 2),
    domains=("TRT",),
    dynamic=False,
    source=YOLO,
)


class QKV(Function):
    @staticmethod
    def symbolic(g, query, key, value):
        return g.op("plugins::QKV", query, key, value)

    @staticmethod
    def forward(ctx, query, key, value):
        scores = torch.matmul(query / query.shape[-1] ** 0.5, key.permute(0, 2, 1)).softmax(-1)
        return torch.matmul(scores, value)


class QKV2(QKV):
    @staticmethod
    def symbolic(g, query, key, value):
        return g.op("plugins::QKV2", query, key, value)


case(
    "attention_plugin",
    lambda x, y, z: QKV.apply(x, y, z),
    *(tensor(2, 3, 4) for _ in "qkv"),
    domains=("plugins",),
    dynamic=False,
    source=f"{BEV}multi_head_attn.py",
)
case(
    "attention_plugin_of_a_subclass",
    lambda x, y, z: QKV2.apply(x, y, z),
    *(tensor(2, 3, 4) for _ in "qkv"),
    domains=("plugins",),
    dynamic=False,
    source=f"{BEV}multi_head_attn.py",
)


class Rotate(Function):
    @staticmethod
    def symbolic(g, img, angle, center, interpolation):
        return g.op("plugins::Rotate", img, angle, center, interpolation_i=interpolation)

    @staticmethod
    def forward(ctx, img, angle, center, interpolation):
        assert img.ndim == 3
        width = img.shape[-1]
        cx = center[0] - center[0].new_tensor(width * 0.5)
        theta = -angle * 3.1415926 / 180
        rows = torch.stack([torch.cos(theta), torch.sin(theta), cx]).reshape(3, 1, 1)
        return img * rows.sum()


case(
    "rotate_plugin",
    lambda x, y, z: Rotate.apply(x, y.sum(), z, 1),
    tensor(3, 4, 4),
    tensor(1),
    tensor(2),
    domains=("plugins",),
    dynamic=False,
    source=f"{BEV}rotate.py",
)
