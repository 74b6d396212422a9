"""What old nodes compute, as loops in float64, for onnx's evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import vision_references as reference
from onnx.reference.op_run import OpRun

__all__ = ["old_operators"]


def _grid_priors(inputs: Sequence[np.ndarray], stride_h: int, stride_w: int) -> Any:
    anchors, height, width = inputs
    place = [(x * stride_w, y * stride_h) * 2 for y in range(len(height)) for x in range(len(width))]
    return (anchors[None] + np.array(place, np.float32)[:, None]).reshape(-1, 4)


def _batched_nms(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    least = options["score_threshold"]
    numbers = options["topk"], options["keep_topk"], options["background_label_id"]
    boxes, scores, labels, index = reference.batched_nms(*inputs, options["iou_threshold"], least, *numbers)
    rows = np.concatenate([boxes, scores[..., None]], 2).astype(np.float32)
    return (rows, labels, index.astype(np.int32))[: 3 if options.get("return_index") else 2]


def _efficient_nms(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    thresholds = options["iou_threshold"], options["score_threshold"]
    boxes, scores, labels, _ = reference.batched_nms(
        inputs[0][:, :, None], inputs[1], *thresholds, -1, options["max_output_boxes"]
    )
    count = (labels >= 0).sum(1, keepdims=True).astype(np.int32)
    return count, boxes.astype(np.float32), scores.astype(np.float32), labels.clip(0).astype(np.int32)


def _batched_plugin(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    thresholds = options["iouThreshold"], options["scoreThreshold"]
    found = reference.batched_nms(*inputs, *thresholds, options["topK"], options["keepTopK"])
    boxes, scores, labels = (array.astype(np.float32) for array in found[:3])
    return (found[2] >= 0).sum(1, keepdims=True).astype(np.int32), boxes.clip(0, 1), scores, labels


def _multi_level(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    rois, *maps = inputs
    size = options["output_height"], options["output_width"]

    def align(image: np.ndarray, roi: np.ndarray, scale: float) -> np.ndarray:
        if len(roi[0]) == 5:
            return reference.roi_align(image, roi, size, scale, options["sampling_ratio"], True)
        moved = roi * np.array([1, 1, 1, *(2 * [options["roi_scale_factor"]]), 1])
        return reference.roi_align_rotated(image, moved, size, scale, options["sampling_ratio"], True, True)

    wide = [array.astype(np.float64) for array in maps]
    return reference.by_level(rois, wide, options["featmap_strides"], options["finest_scale"], align)


def _roi_align_rotated(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    image, rois = (array.astype(np.float64) for array in inputs)
    size = options["output_height"], options["output_width"]
    flags = bool(options["aligned"]), bool(options["clockwise"])
    return reference.roi_align_rotated(image, rois, size, options["spatial_scale"], options["sampling_ratio"], *flags)


def _soft_nms(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    method = ("naive", "linear", "gaussian")[options["method"]]
    numbers = options["iou_threshold"], options["sigma"], options["min_score"]
    rows, index = reference.soft_nms(*inputs, *numbers, method, options["offset"])
    return rows.astype(np.float32), index


def _deform_conv(inputs: Sequence[np.ndarray], **options: Any) -> Any:
    image, offset, mask, weight, bias = (array.astype(np.float64) for array in inputs)
    sides = (tuple(options[name]) for name in ("stride", "padding", "dilation"))
    return reference.deform_conv(image, offset, mask, weight, bias, *sides, options["groups"], options["deform_groups"])


_LOOPS: dict[str, Callable[..., Any]] = {
    "mmdeploy::GatherTopk": lambda inputs: np.stack([data[index] for data, index in zip(*inputs, strict=True)]),
    "mmdeploy::GridPriorsTRT": _grid_priors,
    "mmdeploy::TRTBatchedNMS": _batched_nms,
    "mmdeploy::TRTBatchedRotatedNMS": _batched_nms,
    "TRT::EfficientNMS_TRT": _efficient_nms,
    "TRT::BatchedNMSDynamic_TRT": _batched_plugin,
    "mmdeploy::NMSRotated": lambda inputs, iou_threshold, score_threshold: reference.nms(
        *inputs, iou_threshold, score_threshold
    ),
    "mmdeploy::MMCVMultiLevelRoiAlign": _multi_level,
    "mmdeploy::MMCVMultiLevelRotatedRoiAlign": _multi_level,
    "mmdeploy::MMCVRoIAlignRotated": _roi_align_rotated,
    "mmdeploy::MMCVMultiScaleDeformableAttention": lambda inputs, im2col_step: reference.ms_deform_attn(*inputs),
    "mmcv::MMCVCornerPool": lambda inputs, mode: reference.corner_pool(
        inputs[0], ("top", "bottom", "left", "right")[mode]
    ),
    "mmcv::MMCVBorderAlign": lambda inputs, pool_size: reference.border_align(*inputs, pool_size),
    "mmcv::SoftNonMaxSuppression": _soft_nms,
    "mmdeploy::grid_sampler": lambda inputs, interpolation_mode, padding_mode, align_corners: reference.grid_sample(
        *inputs, bool(align_corners)
    ),
    "mmdeploy::MMCVModulatedDeformConv2d": _deform_conv,
}
"""What each old node computes, for the inputs and the attributes of the node."""


def old_operators() -> list[type[OpRun]]:
    """The loops as operators of onnx's evaluator."""

    def operator(target: str, loop: Callable[..., Any]) -> type[OpRun]:
        domain, _, name = target.partition("::")

        def run(self: OpRun, *inputs: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
            found = loop(inputs, **attributes)
            results = found if isinstance(found, tuple) else (found,)
            return tuple(array.astype(np.float32) if array.dtype == np.float64 else array for array in results)

        return type(name, (OpRun,), {"op_domain": domain, "_run": run})

    return [operator(target, loop) for target, loop in _LOOPS.items()]
