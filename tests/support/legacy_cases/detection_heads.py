"""Heads of detectors: OpenVINO's mmdetection, MMDeploy, YOLOv6, Ascend's models."""

from functools import wraps

import torch
import torch.onnx.symbolic_helper as sym_help
from torch.autograd import Function
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

MMDETECTION = "https://github.com/openvinotoolkit/mmdetection/blob/09f8f96f8b18/mmdet/utils/deployment/"
MMDEPLOY = "https://github.com/open-mmlab/mmdeploy/blob/3f8604bd72e8/mmdeploy/"
YOLOV6 = "https://github.com/meituan/YOLOv6/blob/e86a483f3f6b/yolov6/models/end2end.py"
ASCEND = "https://github.com/Ascend/ModelZoo-PyTorch/blob/6a2804a358a5/"

DOMAIN_NAME = "org.openvinotoolkit"


def add_domain(name_operator: str) -> str:
    return DOMAIN_NAME + "::" + name_operator


def grid_anchors(base_anchors, size, stride):
    return base_anchors.repeat(size[0] * size[1], 1) * stride[0]


class PriorBox(Function):
    @staticmethod
    def symbolic(g, grid, base_anchors, base_size, scales, ratios, anchor_stride, feat, img_tensor, target_stds):
        min_size = base_size
        max_sizes = []
        ars = []
        for scale in scales[1:]:
            max_sizes.append(scale * scale * min_size)
        for ar in ratios:
            if ar > 1:
                ars.append(ar)
        return g.op(
            add_domain("PriorBox"),
            feat,
            img_tensor,
            min_size_f=[min_size],
            max_size_f=max_sizes,
            aspect_ratio_f=ars,
            flip_i=1,
            variance_f=list(target_stds),
            step_f=anchor_stride[0],
            step_h_f=0,
        )

    @staticmethod
    def forward(ctx, grid, base_anchors, base_size, scales, ratios, anchor_stride, feat, img_tensor, target_stds):
        assert anchor_stride[0] == anchor_stride[1]
        anchors = grid(base_anchors, feat.size()[-2:], anchor_stride)
        return anchors.view(1, -1).unsqueeze(0)


case(
    "mmdetection_prior_box_of_a_function",
    lambda x, y: PriorBox.apply(
        grid_anchors, torch.ones(2, 4), 21.0, [1.0, 1.5], [0.5, 2.0], (8, 8), x, y, (0.1, 0.1, 0.2, 0.2)
    ),
    tensor(1, 2, 3, 4),
    tensor(1, 3, 8, 8),
    dynamic=False,
    domains=("org.openvinotoolkit",),
    source=f"{MMDETECTION}ssd_export_helpers.py",
)

CONFIG = {"max_per_img": 5, "score_thr": 0.25, "nms": {"type": "nms", "iou_threshold": 0.5}}


class DetectionOutput(Function):
    @staticmethod
    def symbolic(g, cls_scores, bbox_preds, img_metas, cfg, rescale, priors, cls_out_channels, use_sigmoid_cls):
        return g.op(
            add_domain("DetectionOutput"),
            bbox_preds,
            cls_scores,
            priors,
            num_classes_i=cls_out_channels,
            background_label_id_i=cls_out_channels - 1,
            top_k_i=-1,
            keep_top_k_i=cfg["max_per_img"],
            confidence_threshold_f=cfg["score_thr"],
            nms_threshold_f=cfg["nms"]["iou_threshold"],
            eta_f=1,
            code_type_s="CENTER_SIZE",
        )

    @staticmethod
    def forward(ctx, cls_scores, bbox_preds, img_metas, cfg, rescale, priors, cls_out_channels, use_sigmoid_cls):
        return torch.zeros(cls_scores.shape[0], 1, cfg["max_per_img"], 7)


case(
    "mmdetection_detection_output_of_a_dict",
    lambda x, y, z: DetectionOutput.apply(x, y, [{"scale": 1.0}], CONFIG, False, z, 3, True),
    tensor(1, 12),
    tensor(1, 16),
    tensor(1, 2, 16),
    dynamic=False,
    domains=("org.openvinotoolkit",),
    source=f"{MMDETECTION}ssd_export_helpers.py",
)


def py_symbolic(op_name, namespace, adapter):
    """A decorator that looks a symbolic function up when the decorated function is called."""

    def decorator(function):
        @wraps(function)
        def wrapped(*args, **kwargs):
            try:
                from torch.onnx.symbolic_registry import get_registered_op, is_registered_op
            except ImportError:
                return function(*args, **kwargs)
            opset = sym_help._export_onnx_opset_version
            if not is_registered_op(op_name, namespace, opset):
                return function(*args, **kwargs)
            adapter_args, adapter_kwargs = adapter(*args, **kwargs)

            class XFunction(Function):
                @staticmethod
                def forward(ctx, *xargs):
                    return function(*args, **kwargs)

                @staticmethod
                def symbolic(g, *xargs):
                    return get_registered_op(op_name, namespace, opset)(g, *xargs, **adapter_kwargs)

            return XFunction.apply(*adapter_args)

        return wrapped

    return decorator


class Extractor:
    featmap_strides = (4, 8)
    output_size = 2


@py_symbolic(
    "roi_feature_extractor",
    "mmdet_custom",
    lambda layer, feats, rois: (
        (rois, *feats),
        {"output_size": layer.output_size, "featmap_strides": layer.featmap_strides, "sample_num": 2},
    ),
)
def extract(layer, feats, rois):
    return feats[0].new_zeros(rois.shape[0], feats[0].shape[1], layer.output_size, layer.output_size)


def roi_feature_extractor(g, rois, *feats, output_size=1, featmap_strides=1, sample_num=1):
    from torch.onnx.symbolic_helper import _slice_helper

    rois = _slice_helper(g, rois, axes=[1], starts=[1], ends=[5])
    return g.op(
        add_domain("ExperimentalDetectronROIFeatureExtractor"),
        rois,
        *feats,
        output_size_i=output_size,
        pyramid_scales_i=featmap_strides,
        sampling_ratio_i=sample_num,
        outputs=1,
    )


def register_roi_feature_extractor():
    from torch.onnx.symbolic_registry import register_op

    register_op("roi_feature_extractor", roi_feature_extractor, "mmdet_custom", 10)


case(
    "mmdetection_symbolic_of_the_registry",
    lambda x, y, z: extract(Extractor(), [x, y], z),
    tensor(1, 2, 8, 8),
    tensor(1, 2, 4, 4),
    tensor(3, 5),
    setup=register_roi_feature_extractor,
    undo=[("mmdet_custom::roi_feature_extractor", 10)],
    oracle=False,
    graph=(
        "org.openvinotoolkit::ExperimentalDetectronROIFeatureExtractor[0]{output_size=2, pyramid_scales=(4, 8), "
        "sampling_ratio=2}(::Slice[0]{}(input 2, ('int64', (1,), (1,)), ('int64', (1,), (5,)), ('int64', (1,), (1,))), "
        "input 0, input 1)",
    ),
    dynamic=False,
    domains=("org.openvinotoolkit",),
    migrates=False,
    alone=True,
    source=f"{MMDETECTION}symbolic.py",
)


def view_as(g, self, other):
    from torch.onnx.symbolic_opset9 import reshape_as

    return reshape_as(g, self, other)


@parse_args("v", "v", "i", "i", "i", "none")
def topk(g, self, k, dim, largest, sorted, out=None):
    return sym_help._topk_helper(g, g.op("Neg", self), k, dim, bool(largest), bool(sorted), out)


def register_view_as():
    register_custom_op_symbolic("aten::view_as", view_as, 10)


def register_topk():
    register_custom_op_symbolic("aten::topk", topk, 18)


case(
    "mmdetection_view_as", lambda x, y: x.view_as(y).exp(), tensor(2, 6), tensor(2, 3, 2), setup=register_view_as,
    undo=[("aten::view_as", 10)], dynamic=False, migrates=False, alone=True, source=f"{MMDETECTION}symbolic.py",
)  # fmt: skip
case(
    "mmdetection_topk", lambda x: tuple(x.topk(2, 1)), tensor(2, 5), setup=register_topk, undo=[("aten::topk", 18)],
    alone=True,
    source=f"{MMDETECTION}symbolic.py",
)  # fmt: skip


class BatchedNMS(Function):
    @staticmethod
    def forward(
        ctx, boxes, scores, plugin_version="1", shareLocation=1, backgroundLabelId=-1, numClasses=80, keepTopK=100,
        scoreThreshold=0.25, iouThreshold=0.45,
    ):  # fmt: skip
        batch = scores.shape[0]
        return (
            torch.randint(0, keepTopK, (batch, 1), dtype=torch.int32),
            torch.randn(batch, keepTopK, 4),
            torch.randn(batch, keepTopK),
            torch.randint(0, numClasses, (batch, keepTopK)).float(),
        )

    @staticmethod
    def symbolic(
        g, boxes, scores, plugin_version="1", shareLocation=1, backgroundLabelId=-1, numClasses=80, keepTopK=100,
        scoreThreshold=0.25, iouThreshold=0.45,
    ):  # fmt: skip
        out = g.op(
            "TRT::BatchedNMSDynamic_TRT",
            boxes,
            scores,
            shareLocation_i=shareLocation,
            plugin_version_s=plugin_version,
            backgroundLabelId_i=backgroundLabelId,
            numClasses_i=numClasses,
            keepTopK_i=keepTopK,
            scoreThreshold_f=scoreThreshold,
            iouThreshold_f=iouThreshold,
            outputs=4,
        )
        nums, boxes, scores, classes = out
        return nums, boxes, scores, classes


case(
    "yolov6_batched_nms",
    lambda x, y: BatchedNMS.apply(x, y, "1", 1, -1, 2, 10, 0.3, 0.5),
    tensor(1, 5, 1, 4),
    tensor(1, 5, 2),
    dynamic=False,
    domains=("TRT",),
    source=YOLOV6,
)


class SSDOutput(Function):
    @staticmethod
    def forward(
        ctx,
        loc,
        conf,
        anchor,
        score_threshold=0.35,
        nms_threshold=0.45,
        keep_top_k=100,
        stds=[0.1, 0.1, 0.2, 0.2],  # noqa: B006
    ):
        return torch.rand(loc.shape[0], keep_top_k, 6)

    @staticmethod
    def symbolic(
        g,
        loc,
        conf,
        anchor,
        score_threshold=0.35,
        nms_threshold=0.45,
        keep_top_k=100,
        stds=[0.1, 0.1, 0.2, 0.2],  # noqa: B006
    ):
        return g.op(
            "mmdeploy::DetectionOutput",
            loc,
            conf,
            anchor,
            score_threshold_f=score_threshold,
            nms_threshold_f=nms_threshold,
            keep_top_k_i=keep_top_k,
            vars_f=stds,
            outputs=1,
        )


case(
    "mmdeploy_detection_output_of_defaults",
    lambda x, y, z: SSDOutput.apply(x, y, z, 0.5, 0.25, 4, [0.1, 0.1, 0.3, 0.3]),
    tensor(1, 16),
    tensor(1, 12),
    tensor(1, 16),
    dynamic=False,
    domains=("mmdeploy",),
    source=f"{MMDEPLOY}codebase/mmdet/ops/detection_output.py",
)


class GridPriors(Function):
    @staticmethod
    def symbolic(g, base_anchors, feat_h, feat_w, stride_h: int, stride_w: int):
        from torch.onnx import symbolic_helper

        feat_h = symbolic_helper._unsqueeze_helper(g, feat_h, [0])
        feat_w = symbolic_helper._unsqueeze_helper(g, feat_w, [0])
        zero_h = g.op("ConstantOfShape", feat_h, value_t=torch.tensor([0], dtype=torch.long))
        zero_w = g.op("ConstantOfShape", feat_w, value_t=torch.tensor([0], dtype=torch.long))
        return g.op("mmdeploy::GridPriorsTRT", base_anchors, zero_h, zero_w, stride_h_i=stride_h, stride_w_i=stride_w)

    @staticmethod
    def forward(ctx, base_anchors, feat_h, feat_w, stride_h: int, stride_w: int):
        return base_anchors.repeat(2, 1) * stride_h * stride_w


case(
    "mmdeploy_grid_priors_of_sizes",
    lambda x: GridPriors.apply(x, torch.tensor(3), torch.tensor(4), 8, 16),
    tensor(2, 4),
    dynamic=False,
    domains=("mmdeploy",),
    migrates=False,
    source="https://github.com/open-mmlab/mmdeploy/blob/3f8604bd72e8/tests/test_ops/test_ops.py",
)


class MultiLevelAlign(Function):
    @staticmethod
    def symbolic(g, *args):
        aligned = args[-1]
        strides = args[-2]
        ratio = args[-3]
        size = args[-4]
        inputs = args[: len(strides)]
        rois = args[len(strides)]
        return g.op(
            "mmdeploy::MMCVMultiLevelRotatedRoiAlign",
            rois,
            *inputs,
            output_height_i=size[1],
            output_width_i=size[0],
            sampling_ratio_i=ratio,
            featmap_strides_f=strides,
            aligned_i=aligned,
        )

    @staticmethod
    def forward(ctx, *args):
        size, rois = args[-4], args[len(args[-2])]
        return rois.new_zeros(rois.shape[0], args[0].shape[1], size[1], size[0])


case(
    "mmdeploy_multi_level_align",
    lambda x, y, z: MultiLevelAlign.apply(x, y, z, (2, 3), 1, [4, 8], True),
    tensor(1, 2, 8, 8),
    tensor(1, 2, 4, 4),
    tensor(3, 6),
    dynamic=False,
    domains=("mmdeploy",),
    migrates=False,
    source=f"{MMDEPLOY}codebase/mmrotate/models/roi_heads/roi_extractors.py",
)


class NMSMatch(Function):
    @staticmethod
    def forward(ctx, boxes, scores, iou_threshold: float, score_threshold: float):
        return torch.zeros(2, 4, dtype=torch.int64)

    @staticmethod
    def symbolic(g, boxes, scores, iou_threshold: float, score_threshold: float):
        if not sym_help._is_value(iou_threshold):
            iou_threshold = g.op("Constant", value_t=torch.tensor([iou_threshold], dtype=torch.float))
        if not sym_help._is_value(score_threshold):
            score_threshold = g.op("Constant", value_t=torch.tensor([score_threshold], dtype=torch.float))
        return g.op("mmdeploy::NMSMatch", boxes, scores, iou_threshold, score_threshold)


case(
    "mmdeploy_nms_match",
    lambda x, y: NMSMatch.apply(x, y, 0.5, 0.25),
    tensor(1, 5, 4),
    tensor(1, 5, 2),
    dynamic=False,
    domains=("mmdeploy",),
    source=f"{MMDEPLOY}mmcv/ops/nms_match.py",
)


class BatchNMS(Function):
    @staticmethod
    def forward(ctx, bboxes, scores, score_threshold, iou_threshold, max_size_per_class, max_total_size, image_size):
        boxes = bboxes[:, :max_total_size, 0, :]
        return boxes, torch.rand(1, max_total_size), torch.arange(max_total_size), torch.Tensor([max_total_size])

    @staticmethod
    def symbolic(g, bboxes, scores, score_thr, iou_thr, max_size_p_class, max_t_size, image_size):
        boxes, scores, classes, number = g.op(
            "BatchMultiClassNMS", bboxes, scores, score_threshold_f=score_thr, iou_threshold_f=iou_thr,
            max_size_per_class_i=max_size_p_class, max_total_size_i=max_t_size, image_size_i=image_size, outputs=4,
        )  # fmt: skip
        return boxes, scores, classes, number


class Bucketize(Function):
    @staticmethod
    def symbolic(g, x, boundaries):
        return g.op("Bucketize", x, boundaries_f=boundaries)

    @staticmethod
    def forward(ctx, x, boundaries):
        return torch.bucketize(x, torch.tensor(boundaries))


class DeformableConv(Function):
    @staticmethod
    def forward(ctx, input, weight, offset, bias, stride, padding, dilation, groups):
        return torch.nn.functional.conv2d(input, weight, bias, stride, padding, dilation)

    @staticmethod
    def symbolic(g, input, weight, offset, bias, strides, pads, dilation, deformable_groups):
        from torch.nn.modules.utils import _pair

        strides = _pair(strides)
        return g.op(
            "DeformableConv2D", input, weight, offset, bias, strides_i=strides, pads_i=_pair(pads),
            dilations_i=_pair(dilation), groups_i=1, deformable_groups_i=deformable_groups,
        )  # fmt: skip


for _name, _forward, _inputs, _source in (
    (
        "batch_nms",
        lambda x, y: BatchNMS.apply(x, y, 0.25, 0.5, 3, 4, (8, 8)),
        (tensor(1, 5, 2, 4), tensor(1, 5, 2)),
        "ACL_PyTorch/built-in/cv/YoloX_Tiny_for_Pytorch/bbox_nms.py",
    ),
    (
        "bucketize",
        lambda x: Bucketize.apply(x, [-1.0, 0.0, 1.0]),
        (tensor(2, 3),),
        "ACL_PyTorch/built-in/audio/FastSpeech2_for_PyTorch/pth2onnx.py",
    ),
    (
        "deformable_conv",
        lambda x, y: DeformableConv.apply(x, torch.ones(2, 2, 3, 3), y, torch.zeros(2), 1, 1, 1, 1),
        (tensor(1, 2, 4, 4), tensor(1, 18, 4, 4)),
        "ACL_PyTorch/contrib/cv/detection/CenterNet/dcn_v2.py",
    ),
):
    case(
        f"ascend_{_name}", _forward, *_inputs, kept=True, dynamic=False, migrates=False, source=f"{ASCEND}{_source}",
    )  # fmt: skip
