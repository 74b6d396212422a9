"""Models with one node of an older tool, as that tool's documents write it, and what it computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import vision_references as reference
from onnx import TensorProto, helper

TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One node, its inputs, and its results.

    Attributes:
        name: The case.
        target: ``"domain::Op"``.
        inputs: The inputs by name.
        attributes: The attributes of the node.
        expected: The results of the loop in float64, for the inputs in float64.
        outputs: The element type that the model declares for each output.
        constants: The inputs that are initializers.
        has_operator: Whether the node becomes an operator with a body and a kernel.
    """

    name: str
    target: str
    inputs: Mapping[str, np.ndarray]
    attributes: Mapping[str, Any]
    expected: Callable[[], Any]
    outputs: tuple[Any, ...] = (np.float32,)
    constants: tuple[str, ...] = ()
    has_operator: bool = False

    def model(self, *, opset: int = 11, dynamic: bool = False) -> onnx.ModelProto:
        """The model, as an exporter of that time wrote it: opset 11, no types between the nodes."""
        domain, _, op_type = self.target.partition("::")
        node = helper.make_node(
            op_type,
            [name if name else "" for name in self.inputs],
            [f"output_{k}" for k in range(len(self.outputs))],
            name="old",
            domain=domain,
            **self.attributes,
        )

        def sizes(array: np.ndarray) -> list[int | str]:
            return [f"size_{n}" if dynamic and axis == 0 else n for axis, n in enumerate(array.shape)]

        inputs = [
            helper.make_tensor_value_info(name, TYPES[array.dtype], sizes(array))
            for name, array in self.feeds().items()
        ]
        outputs = [
            helper.make_tensor_value_info(
                f"output_{k}", TYPES[np.dtype(dtype)], [f"output_{k}_{axis}" for axis in range(array.ndim)]
            )
            for k, (dtype, array) in enumerate(zip(self.outputs, reference.flattened(self.expected()), strict=True))
        ]
        weights = [onnx.numpy_helper.from_array(self.inputs[name], name) for name in self.constants]
        graph = helper.make_graph([node], "old", inputs, outputs, weights)
        imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
        return helper.make_model(graph, opset_imports=imports, ir_version=6)

    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs that are not constants."""
        return {name: array for name, array in self.inputs.items() if name not in self.constants}


def _floats(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float64) for array in arrays]


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _grid_sampler(domain: str, align_corners: int) -> Case:
    random = _random(1)
    image = random.standard_normal((2, 3, 5, 6)).astype(np.float32)
    grid = random.uniform(-1.3, 1.3, (2, 4, 3, 2)).astype(np.float32)
    return Case(
        f"grid_sampler {domain} {align_corners}",
        f"{domain}::grid_sampler",
        {"input": image, "grid": grid},
        {"interpolation_mode": 0, "padding_mode": 0, "align_corners": align_corners},
        lambda: reference.grid_sample(*_floats(image, grid), bool(align_corners)),
    )


def _grid_sampler_modes(interpolation: int, padding: int) -> Case:
    random = _random(23)
    image = random.standard_normal((2, 3, 5, 6)).astype(np.float32)
    grid = random.uniform(-1.6, 1.6, (2, 4, 3, 2)).astype(np.float32)

    def expected() -> np.ndarray:
        import torch

        modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
        return torch.nn.functional.grid_sample(
            *(torch.from_numpy(array).double() for array in (image, grid)),
            mode=modes[interpolation],
            padding_mode=paddings[padding],
            align_corners=False,
        ).numpy()

    return Case(
        f"grid_sampler modes {interpolation} {padding}",
        "mmdeploy::grid_sampler",
        {"input": image, "grid": grid},
        {"interpolation_mode": interpolation, "padding_mode": padding, "align_corners": 0},
        expected,
    )


def _deform_conv(domain: str, *, version: int, with_bias: bool) -> Case:
    random = _random(2)
    image = random.standard_normal((2, 4, 6, 5)).astype(np.float32)
    weight = random.standard_normal((6, 2, 3, 2)).astype(np.float32)
    stride, padding, dilation = (2, 1), (1, 2), (1, 2)
    sizes = (6 + 2 * 1 - 2 - 1) // 2 + 1, (5 + 2 * 2 - 2 - 1) // 1 + 1
    offset = (2 * random.standard_normal((2, 2 * 2 * 6, *sizes))).astype(np.float32)
    mask = random.uniform(0, 1, (2, 2 * 6, *sizes)).astype(np.float32)
    bias = random.standard_normal(6).astype(np.float32)
    inputs = {"input": image, "offset": offset}
    inputs |= {"mask": mask, "weight": weight} if version == 2 else {"weight": weight}
    inputs |= {"bias": bias} if with_bias else {}
    # MMDeploy's symbolic function for version 1 writes each padding twice.
    pads = (1, 1, 2, 2) if version == 1 and domain == "mmdeploy" else padding
    return Case(
        f"deform_conv {domain} {version}{' with bias' if with_bias else ''}",
        f"{domain}::MMCV{'Modulated' if version == 2 else ''}DeformConv2d",
        inputs,
        {"stride": stride, "padding": pads, "dilation": dilation, "groups": 2, "deform_groups": 2},
        lambda: reference.deform_conv(
            *_floats(image, offset),
            mask if version == 2 else None,
            weight,
            bias if with_bias else None,
            stride,
            padding,
            dilation,
            2,
            2,
        ),
        constants=("weight", "bias") if with_bias else ("weight",),
        has_operator=True,
    )


_ROIS = np.array([[0, 2, 3, 14, 12], [1, -3, 1, 8.5, 20], [1, 5, 5, 5.3, 5.2], [0, 10, 12, 21, 17]], np.float32)


def _roi_align(target: str, *, aligned: int, ratio: int) -> Case:
    image = _random(3).standard_normal((2, 3, 9, 10)).astype(np.float32)
    return Case(
        f"roi_align {target} {aligned} {ratio}",
        target,
        {"input": image, "rois": _ROIS},
        {
            "output_height": 3,
            "output_width": 2,
            "spatial_scale": 0.5,
            "sampling_ratio": ratio,
            "mode": "avg",
            "aligned": aligned,
        },
        lambda: reference.roi_align(*_floats(image, _ROIS), (3, 2), 0.5, ratio, bool(aligned)),
        constants=("rois",),
    )


def _multi_level(factor: float) -> Case:
    random = _random(4)
    maps = [random.standard_normal((2, 3, side, side)).astype(np.float32) for side in (16, 8, 4)]
    strides = [4.0, 8.0, 16.0]
    rois = np.array([[0, 1, 1, 8, 9], [1, 2, 3, 40, 30], [1, 0, 0, 60, 62], [0, 20, 9, 33, 30]], np.float32)

    def align(image: np.ndarray, roi: np.ndarray, scale: float) -> np.ndarray:
        moved = roi.copy()
        if factor > 0:
            for low, high in ((1, 3), (2, 4)):
                centre, half = (roi[0, low] + roi[0, high]) / 2, (roi[0, high] - roi[0, low] + 1) * factor / 2 - 0.5
                moved[0, low], moved[0, high] = centre - half, centre + half
        return reference.roi_align(image, moved, (2, 2), scale, 2, True)

    return Case(
        f"multi_level_roi_align {factor}",
        "mmdeploy::MMCVMultiLevelRoiAlign",
        {"rois": rois, **{f"map_{k}": array for k, array in enumerate(maps)}},
        {
            "output_height": 2,
            "output_width": 2,
            "pool_mode": 1,
            "sampling_ratio": 2,
            "roi_scale_factor": factor,
            "finest_scale": 14,
            "featmap_strides": strides,
            "aligned": 1,
        },
        lambda: reference.by_level(rois, _floats(*maps), strides, 14, align),
        constants=("rois",),
    )


_ROTATED_ROIS = np.array(
    [[0, 8, 8, 6, 10, 0.3], [1, 20, 4, 14, 5, -1.2], [1, 2, 17, 9, 7, 2], [0, 11, 9, 0.5, 0.2, 0]], np.float32
)


def _roi_align_rotated(target: str, *, aligned: int, clockwise: int, ratio: int) -> Case:
    image = _random(5).standard_normal((2, 3, 9, 11)).astype(np.float32)
    return Case(
        f"roi_align_rotated {target} {aligned} {clockwise} {ratio}",
        target,
        {"input": image, "rois": _ROTATED_ROIS},
        {
            "output_height": 2,
            "output_width": 3,
            "spatial_scale": 0.5,
            "sampling_ratio": ratio,
            "aligned": aligned,
            "clockwise": clockwise,
        },
        lambda: reference.roi_align_rotated(
            *_floats(image, _ROTATED_ROIS), (2, 3), 0.5, ratio, bool(aligned), bool(clockwise)
        ),
        constants=("rois",),
        has_operator=True,
    )


def _multi_level_rotated() -> Case:
    random = _random(6)
    maps = [random.standard_normal((2, 2, side, side)).astype(np.float32) for side in (16, 8)]
    rois = np.array([[0, 9, 8, 6, 10, 0.3], [1, 30, 32, 40, 25, -1.2], [0, 20, 30, 22, 18, 2]], np.float32)

    def align(image: np.ndarray, roi: np.ndarray, scale: float) -> np.ndarray:
        moved = roi.copy()
        moved[0, 3:5] *= 1.5
        return reference.roi_align_rotated(image, moved, (2, 2), scale, 2, True, True)

    return Case(
        "multi_level_rotated_roi_align",
        "mmdeploy::MMCVMultiLevelRotatedRoiAlign",
        {"rois": rois, **{f"map_{k}": array for k, array in enumerate(maps)}},
        {
            "output_height": 2,
            "output_width": 2,
            "clockwise": 1,
            "sampling_ratio": 2,
            "roi_scale_factor": 1.5,
            "finest_scale": 14,
            "featmap_strides": [4.0, 8.0],
            "aligned": 1,
        },
        lambda: reference.by_level(rois, _floats(*maps), [4.0, 8.0], 14, align),
        constants=("rois",),
        has_operator=True,
    )


def _boxes(seed: int, images: int, count: int, shared: int, *, rotated: bool, normalized: bool = False) -> np.ndarray:
    random = _random(seed)
    centre = random.uniform(0, 25, (images, count, shared, 2))
    size = random.uniform(4, 14, (images, count, shared, 2))
    if rotated:
        return np.concatenate([centre, size, random.uniform(-3, 3, (images, count, shared, 1))], 3).astype(np.float32)
    corners = np.concatenate([centre - size / 2, centre + size / 2], 3) / (25 if normalized else 1)
    return corners.astype(np.float32)


def _nms_rotated() -> Case:
    boxes, scores = _boxes(7, 2, 12, 1, rotated=True)[:, :, 0], _random(8).uniform(0, 1, (2, 3, 12)).astype(np.float32)
    return Case(
        "nms_rotated",
        "mmdeploy::NMSRotated",
        {"boxes": boxes, "scores": scores},
        {"iou_threshold": 0.25, "score_threshold": 0.3},
        lambda: reference.nms(boxes, scores, 0.25, 0.3),
        outputs=(np.int64,),
        has_operator=True,
    )


def _trt_batched(name: str, *, rotated: bool, shared: int, topk: int, keep: int, background: int, index: bool) -> Case:
    classes = 3
    boxes = _boxes(9, 2, 10, shared, rotated=rotated)
    scores = _random(10).uniform(0, 1, (2, 10, classes)).astype(np.float32)
    written = boxes[:, :, 0] if name.endswith("three axes") else boxes

    def expected() -> Any:
        found = reference.batched_nms(boxes, scores, 0.3, 0.2, topk, keep, background)
        rows = np.concatenate([found[0], found[1][..., None]], 2)
        return (rows, found[2], found[3]) if index else (rows, found[2])

    return Case(
        name,
        f"mmdeploy::TRTBatched{'Rotated' if rotated else ''}NMS",
        {"boxes": written, "scores": scores},
        {
            "num_classes": classes,
            "background_label_id": background,
            "iou_threshold": 0.3,
            "score_threshold": 0.2,
            "topk": topk,
            "keep_topk": keep,
            "is_normalized": 0,
            "clip_boxes": 0,
            **({} if rotated else {"return_index": int(index)}),
        },
        expected,
        outputs=(np.float32, np.int64, np.int32)[: 3 if index else 2],
        has_operator=rotated,
    )


def _plugin(op_type: str, domain: str = "TRT") -> Case:
    is_efficient = op_type == "EfficientNMS_TRT"
    boxes = _boxes(11, 2, 10, 1, rotated=False, normalized=True)
    scores = _random(12).uniform(0, 1, (2, 10, 3)).astype(np.float32)

    def expected() -> Any:
        found = reference.batched_nms(boxes, scores, 0.3, 0.25, -1 if is_efficient else 6, 5)
        clipped = found[0] if is_efficient else np.clip(found[0], 0, 1)
        labels = np.where(found[2] < 0, 0, found[2]) if is_efficient else found[2]
        return (found[2] >= 0).sum(1, keepdims=True), clipped, found[1], labels

    efficient = {
        "score_threshold": 0.25,
        "iou_threshold": 0.3,
        "max_output_boxes": 5,
        "background_class": -1,
        "score_activation": 0,
        "class_agnostic": 0,
        "box_coding": 0,
        "plugin_version": "1",
    }
    batched = {
        "shareLocation": 1,
        "backgroundLabelId": -1,
        "numClasses": 3,
        "topK": 6,
        "keepTopK": 5,
        "scoreThreshold": 0.25,
        "iouThreshold": 0.3,
        "isNormalized": 1,
        "clipBoxes": 1,
    }
    return Case(
        f"{op_type} {domain}",
        f"{domain}::{op_type}",
        {"boxes": boxes[:, :, 0] if is_efficient else boxes, "scores": scores},
        efficient if is_efficient else batched,
        expected,
        outputs=(np.int32, np.float32, np.float32, np.int32 if is_efficient else np.float32),
    )


def _ms_deform_attn() -> Case:
    random = _random(13)
    shapes = np.array([[4, 5], [2, 3]], np.int64)
    starts = np.array([0, 20], np.int64)
    value = random.standard_normal((2, 26, 2, 3)).astype(np.float32)
    locations = random.uniform(-0.2, 1.2, (2, 4, 2, 2, 3, 2)).astype(np.float32)
    weights = random.uniform(0, 1, (2, 4, 2, 2, 3)).astype(np.float32)
    return Case(
        "ms_deform_attn",
        "mmdeploy::MMCVMultiScaleDeformableAttention",
        {"value": value, "shapes": shapes, "starts": starts, "locations": locations, "weights": weights},
        {"im2col_step": 64},
        lambda: reference.ms_deform_attn(value, shapes, starts, locations, weights),
        constants=("shapes", "starts"),
        has_operator=True,
    )


def _gather_topk() -> Case:
    random = _random(14)
    data, indices = random.standard_normal((2, 7, 4)).astype(np.float32), random.integers(0, 7, (2, 3)).astype(np.int32)
    return Case(
        "gather_topk",
        "mmdeploy::GatherTopk",
        {"data": data, "indices": indices},
        {},
        lambda: np.stack([[data[n, i] for i in indices[n]] for n in range(2)]),
        constants=("indices",),
    )


def _instance_norm() -> Case:
    random = _random(15)
    x = random.standard_normal((2, 3, 5, 4)).astype(np.float32)
    scale, bias = (random.standard_normal(3).astype(np.float32) for _ in range(2))

    def expected() -> np.ndarray:
        wide = x.astype(np.float64)
        mean, variance = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
        return (wide - mean) / np.sqrt(variance + 1e-4) * scale[:, None, None] + bias[:, None, None]

    return Case(
        "instance_norm",
        "mmdeploy::TRTInstanceNormalization",
        {"input": x, "scale": scale, "bias": bias},
        {"epsilon": 1e-4},
        expected,
        constants=("scale", "bias"),
    )


def _attention() -> Case:
    random = _random(16)
    query, key, value = (random.standard_normal((2, n, 8)).astype(np.float32) for n in (3, 5, 5))
    mask = random.standard_normal((3, 5)).astype(np.float32)

    def expected() -> tuple[np.ndarray, np.ndarray]:
        scores = query.astype(np.float64) / np.sqrt(8) @ key.astype(np.float64).transpose(0, 2, 1) + mask
        weights = np.exp(scores - scores.max(2, keepdims=True))
        weights /= weights.sum(2, keepdims=True)
        return weights @ value.astype(np.float64), weights

    return Case(
        "attention",
        "mmdeploy::ScaledDotProductAttentionTRT",
        {"query": query, "key": key, "value": value, "mask": mask},
        {},
        expected,
        outputs=(np.float32, np.float32),
    )


def _grid_priors() -> Case:
    anchors = np.array([[-4, -4, 4, 4], [-8, -2, 8, 2]], np.float32)
    rows = [anchor + np.array([x * 8, y * 16, x * 8, y * 16]) for y in range(2) for x in range(3) for anchor in anchors]
    return Case(
        "grid_priors",
        "mmdeploy::GridPriorsTRT",
        {"anchors": anchors, "height": np.zeros(2, np.int64), "width": np.zeros(3, np.int64)},
        {"stride_h": 16, "stride_w": 8},
        lambda: np.stack(rows),
    )


def _scatter_nd() -> Case:
    data, indices = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([[1, 2], [3, 0]], np.int32)
    updates = np.array([-1, -2], np.float32)

    def expected() -> np.ndarray:
        result = data.copy()
        for place, update in zip(indices, updates, strict=True):
            result[tuple(place)] = update
        return result

    inputs = {"data": data, "indices": indices, "updates": updates}
    return Case("scatter_nd", "mmdeploy::ScatterND", inputs, {}, expected, constants=("indices",))


def _bicubic(align_corners: int) -> Case:
    x = _random(17).standard_normal((1, 2, 4, 5)).astype(np.float32)

    def expected() -> np.ndarray:
        import torch

        return torch.nn.functional.interpolate(
            torch.from_numpy(x).double(), scale_factor=(2.0, 3.0), mode="bicubic", align_corners=bool(align_corners)
        ).numpy()

    return Case(
        f"bicubic {align_corners}",
        "mmdeploy::TRTBicubicInterpolate",
        {"input": x},
        {"scale_factor": [2.0, 3.0], "align_corners": align_corners},
        expected,
    )


def _nms_match() -> Case:
    boxes, scores = _boxes(18, 2, 11, 1, rotated=False)[:, :, 0], _random(19).uniform(0, 1, (2, 2, 11))
    scores = scores.astype(np.float32)
    thresholds = {"iou": np.array([0.25], np.float32), "score": np.array([0.3], np.float32)}
    return Case(
        "nms_match",
        "mmdeploy::NMSMatch",
        {"boxes": boxes, "scores": scores, **thresholds},
        {},
        lambda: reference.nms_match(boxes, scores, 0.25, 0.3),
        outputs=(np.int64,),
        constants=("iou", "score"),
        has_operator=True,
    )


def _border_align() -> Case:
    random = _random(26)
    image = random.standard_normal((2, 8, 4, 5)).astype(np.float32)
    first = random.uniform(-1, 3, (2, 20, 2))
    boxes = np.concatenate([first, first + random.uniform(0, 4, (2, 20, 2))], 2).astype(np.float32)
    return Case(
        "border_align",
        "mmcv::MMCVBorderAlign",
        {"input": image, "boxes": boxes},
        {"pool_size": 10},
        lambda: reference.border_align(*_floats(image, boxes), 10),
        has_operator=True,
    )


def _corner_pool(mode: int) -> Case:
    image = _random(27).standard_normal((2, 3, 4, 5)).astype(np.float32)
    return Case(
        f"corner_pool {mode}",
        "mmcv::MMCVCornerPool",
        {"input": image},
        {"mode": mode},
        lambda: reference.corner_pool(image, ("top", "bottom", "left", "right")[mode]),
        has_operator=True,
    )


def _running_extremes(op_type: str, axis: int) -> Case:
    x = _random(28).integers(0, 9, (2, 7, 3)).astype(np.float32)
    return Case(
        op_type,
        f"mmcv::{op_type}",
        {"input": x},
        {"dim": axis},
        lambda: reference.running_extremes(x, axis % 3, op_type == "cummax"),
        outputs=(np.float32, np.int64),
        has_operator=True,
    )


def _soft_nms() -> Case:
    boxes = _boxes(24, 1, 11, 1, rotated=False)[0, :, 0]
    scores = _random(25).uniform(0, 1, 11).astype(np.float32)
    return Case(
        "soft_nms",
        "mmcv::SoftNonMaxSuppression",
        {"boxes": boxes, "scores": scores},
        {"iou_threshold": 0.3, "sigma": 0.4, "min_score": 0.1, "method": 2, "offset": 1},
        lambda: reference.soft_nms(boxes, scores, 0.3, 0.4, 0.1, "gaussian", 1),
        outputs=(np.float32, np.int64),
        has_operator=True,
    )


def _carafe(target: str) -> Case:
    random = _random(21)
    features = random.standard_normal((2, 4, 3, 5)).astype(np.float32)
    masks = random.standard_normal((2, 2 * 9, 6, 10)).astype(np.float32)
    return Case(
        f"carafe {target}",
        target,
        {"features": features, "masks": masks},
        {"kernel_size": 3, "group_size": 2, "scale_factor": 2.0},
        lambda: reference.carafe(features, masks, 3, 2, 2),
        has_operator=True,
    )


CASES = [
    _grid_sampler("mmdeploy", 0),
    _grid_sampler("mmcv", 1),
    _grid_sampler_modes(1, 2),
    _grid_sampler_modes(2, 1),
    _roi_align("mmcv::MMCVRoiAlign", aligned=1, ratio=2),
    _roi_align("mmdeploy::MMCVRoIAlign", aligned=0, ratio=0),
    _multi_level(-1.0),
    _multi_level(1.3),
    _trt_batched("batched_nms", rotated=False, shared=1, topk=6, keep=8, background=-1, index=True),
    _trt_batched("batched_nms per class", rotated=False, shared=3, topk=-1, keep=40, background=1, index=True),
    _trt_batched("batched_nms three axes", rotated=False, shared=1, topk=100, keep=3, background=0, index=False),
    _plugin("EfficientNMS_TRT"),
    _plugin("EfficientNMS_TRT", ""),
    _plugin("BatchedNMS_TRT"),
    _plugin("BatchedNMSDynamic_TRT"),
    _gather_topk(),
    _instance_norm(),
    _attention(),
    _grid_priors(),
    _scatter_nd(),
    _bicubic(0),
    _bicubic(1),
    _deform_conv("mmdeploy", version=2, with_bias=True),
    _deform_conv("mmcv", version=2, with_bias=False),
    _deform_conv("mmdeploy", version=1, with_bias=False),
    _ms_deform_attn(),
    _nms_rotated(),
    _trt_batched("batched_rotated_nms", rotated=True, shared=1, topk=7, keep=9, background=-1, index=False),
    _roi_align_rotated("mmdeploy::MMCVRoIAlignRotated", aligned=1, clockwise=0, ratio=2),
    _roi_align_rotated("mmcv::MMCVRoIAlignRotated", aligned=0, clockwise=1, ratio=0),
    _multi_level_rotated(),
    _nms_match(),
    _soft_nms(),
    _border_align(),
    _running_extremes("cummax", 1),
    _running_extremes("cummin", -1),
    _corner_pool(0),
    _corner_pool(1),
    _corner_pool(2),
    _corner_pool(3),
    _carafe("mmcv::MMCVCARAFE"),
]


def detector() -> onnx.ModelProto:
    """A small detector with four old nodes between standard ones, without types of the values between them."""
    random = _random(22)
    weights: dict[str, np.ndarray] = {
        name: (random.standard_normal(sizes) / 4).astype(np.float32)
        for name, sizes in (
            ("stem", (8, 3, 3, 3)),
            ("offset", (18, 8, 3, 3)),
            ("mask", (9, 8, 3, 3)),
            ("deform", (8, 8, 3, 3)),
            ("bias", (8,)),
            ("head", (7, 8, 1, 1)),
        )
    }
    numbers = {"flat": [0, 7, -1], "zero": [0], "two": [2], "four": [4], "seven": [7], "last": [2], "best": [50]}
    weights |= {name: np.array(value, np.int64) for name, value in numbers.items()}
    conv = {"pads": [1, 1, 1, 1]}
    deform = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "deform_groups": 1}
    nms = {
        "num_classes": 3,
        "background_label_id": -1,
        "iou_threshold": 0.5,
        "score_threshold": 0.05,
        "topk": 40,
        "keep_topk": 10,
        "is_normalized": 0,
        "clip_boxes": 0,
        "return_index": 0,
    }
    rows: list[tuple[str, str, str, dict[str, Any]]] = [
        ("Conv", "image stem", "features", conv),
        ("Conv", "features offset", "offsets", conv),
        ("Conv", "features mask", "logits", conv),
        ("Sigmoid", "logits", "masks", {}),
        ("mmdeploy::MMCVModulatedDeformConv2d", "features offsets masks deform bias", "deformed", deform),
        ("Conv", "deformed head", "maps", {}),
        ("Reshape", "maps flat", "lists", {}),
        ("Transpose", "lists", "rows", {"perm": [0, 2, 1]}),
        ("Slice", "rows zero two last", "corner", {}),
        ("Slice", "rows two four last", "size", {}),
        ("Exp", "size", "sizes", {}),
        ("Add", "corner sizes", "opposite", {}),
        ("Concat", "corner opposite", "boxes", {"axis": 2}),
        ("Slice", "rows four seven last", "classes", {}),
        ("Sigmoid", "classes", "scores", {}),
        ("ReduceMax", "scores", "highest", {"axes": [2], "keepdims": 0}),
        ("TopK", "highest best", "values places", {"axis": 1}),
        ("mmdeploy::GatherTopk", "boxes places", "best_boxes", {}),
        ("mmdeploy::GatherTopk", "scores places", "best_scores", {}),
        ("Unsqueeze", "best_boxes", "shared_boxes", {"axes": [2]}),
        ("mmdeploy::TRTBatchedNMS", "shared_boxes best_scores", "dets labels", nms),
    ]
    nodes = [
        helper.make_node(
            target.rpartition("::")[2],
            inputs.split(),
            outputs.split(),
            domain=target.rpartition("::")[0],
            **attributes,
        )
        for target, inputs, outputs, attributes in rows
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [
            helper.make_tensor_value_info("dets", TensorProto.FLOAT, ["batch", 10, 5]),
            helper.make_tensor_value_info("labels", TensorProto.INT64, ["batch", 10]),
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", 11), helper.make_opsetid("mmdeploy", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=6)
