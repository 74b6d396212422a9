"""The ends of detectors as MMDeploy exported them: several old nodes among the standard ones that it wrote around them.

Built from MMDeploy's documents (docs/en/06-custom-ops) and from what its rewriters of heads call (mmdeploy/codebase),
with small sizes. What the old nodes compute is a loop in float64; the standard ones are computed by onnx.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from vision_loops import old_operators

__all__ = ["GRAPHS", "Graph"]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A model with old nodes, and example inputs."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]

    def expected(self) -> list[np.ndarray]:
        """The outputs, by onnx's evaluator and the loops."""
        return list(ReferenceEvaluator(self.model, new_ops=old_operators()).run(None, dict(self.feeds)))

    @property
    def old_nodes(self) -> set[str]:
        """The old nodes as ``domain::Op``."""
        return {f"{node.domain}::{node.op_type}" for node in self.model.graph.node if node.domain}


class _Builder:
    """Writes a graph node by node; arrays and lists of integers become initializers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._random = np.random.default_rng(len(name))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._feeds: dict[str, np.ndarray] = {}

    def __call__(self, target: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        domain, _, op_type = target.rpartition("::")
        names = [item if isinstance(item, str) else self._weight(np.asarray(item)) for item in inputs]
        results = [f"{op_type}_{len(self._nodes)}_{k}" for k in range(outputs)]
        self._nodes.append(helper.make_node(op_type, names, results, domain=domain, **attributes))
        return results[0] if outputs == 1 else results

    def _weight(self, array: np.ndarray) -> str:
        name = f"weight_{len(self._weights)}"
        narrow = array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)
        self._weights.append(onnx.numpy_helper.from_array(narrow, name))
        return name

    def normal(self, *sizes: int, scale: float = 1.0) -> np.ndarray:
        return (scale * self._random.standard_normal(sizes)).astype(np.float32)

    def uniform(self, low: float, high: float, *sizes: int) -> np.ndarray:
        return self._random.uniform(low, high, sizes).astype(np.float32)

    def input(self, name: str, array: np.ndarray) -> str:
        self._feeds[name] = array
        return name

    def rows(self, name: str, channels: int) -> str:
        """The maps of a head, given as (2, channels, 4, 5), as rows (2, 20, channels)."""
        maps = self.input(name, self.normal(2, channels, 4, 5))
        made: str = self("Reshape", self("Transpose", maps, perm=[0, 2, 3, 1]), [0, -1, channels])
        return made

    def decoded(self, deltas: str, boxes: str) -> str:
        """Corners of boxes moved and stretched by deltas, as DeltaXYWHBBoxCoder does it."""
        low, high = self("Split", boxes, outputs=2, axis=-1)
        move, stretch = self("Split", deltas, outputs=2, axis=-1)
        size = self("Sub", high, low)
        centre = self("Add", self("Mul", self("Add", low, high), 0.5), self("Mul", move, size))
        half = self("Mul", self("Mul", self("Exp", self("Mul", stretch, 0.2)), size), 0.5)
        made: str = self("Concat", self("Sub", centre, half), self("Add", centre, half), axis=-1)
        return made

    def best(self, scores: str, count: int) -> str:
        """The rows whose highest scores are the best."""
        highest = self("ReduceMax", scores, axes=[2], keepdims=0)
        made: str = self("TopK", highest, [count], outputs=2, axis=1)[1]
        return made

    def finish(self, *outputs: tuple[str, int, int]) -> Graph:
        """The graph; each output has a name, an element type and a number of axes."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(array.shape))
            for name, array in self._feeds.items()
        ]
        results = [
            helper.make_tensor_value_info(name, dtype, [f"{name}_{axis}" for axis in range(rank)])
            for name, dtype, rank in outputs
        ]
        graph = helper.make_graph(self._nodes, "end", inputs, results, self._weights)
        domains = sorted({node.domain for node in self._nodes} - {""})
        imports = [helper.make_opsetid("", 11), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return Graph(self.name, helper.make_model(graph, opset_imports=imports, ir_version=6), self._feeds)


_FLOAT, _INT, _INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
_NMS = {
    "num_classes": 3,
    "background_label_id": -1,
    "iou_threshold": 0.5,
    "score_threshold": 0.05,
    "topk": 12,
    "keep_topk": 8,
    "is_normalized": 0,
    "clip_boxes": 0,
}
_LEVELS: dict[str, Any] = {
    "output_height": 2,
    "output_width": 2,
    "sampling_ratio": 2,
    "finest_scale": 14,
    "featmap_strides": [4.0, 8.0],
    "aligned": 1,
}


def _suppressed(g: _Builder, boxes: str, scores: str) -> Graph:
    """TRTBatchedNMS of boxes (images, boxes, 4), as multiclass_nms writes it."""
    rows = g("mmdeploy::TRTBatchedNMS", g("Unsqueeze", boxes, axes=[2]), scores, outputs=2, return_index=0, **_NMS)
    return g.finish((rows[0], _FLOAT, 3), (rows[1], _INT, 2))


def _retinanet() -> Graph:
    """Priors of a grid, the best rows of each level, deltas, suppression (TensorRT)."""
    g = _Builder("retinanet")
    scores, deltas = g("Sigmoid", g.rows("scores", 3)), g.rows("deltas", 4)
    sizes = g("Shape", "scores")
    ranges = [g("ConstantOfShape", g("Slice", sizes, [axis], [axis + 1])) for axis in (2, 3)]
    priors = g("mmdeploy::GridPriorsTRT", np.array([[-6.0, -5, 6, 5]]), *ranges, stride_h=8, stride_w=8)
    spread = g("Expand", g("Unsqueeze", priors, axes=[0]), [2, 1, 1])
    best = g.best(scores, 14)
    chosen = [g("mmdeploy::GatherTopk", rows, best) for rows in (scores, deltas, spread)]
    return _suppressed(g, g.decoded(chosen[1], chosen[2]), chosen[0])


def _condinst() -> Graph:
    """Suppression that returns indices, with which the parameters of masks are gathered (TensorRT)."""
    g = _Builder("condinst")
    scores, parameters = g("Sigmoid", g.rows("scores", 3)), g.rows("parameters", 5)
    low = g.input("low", g.uniform(0, 30, 2, 20, 2))
    boxes = g("Concat", low, g("Add", low, g("Exp", g("Add", g.rows("sizes", 2), 2.0))), axis=2)
    options = {**_NMS, "return_index": 1}
    rows = g("mmdeploy::TRTBatchedNMS", g("Unsqueeze", boxes, axes=[2]), scores, outputs=3, **options)
    # Unused rows have the index -1.
    index = g("Cast", g("Clip", g("Cast", rows[2], to=_FLOAT), 0.0), to=_INT)
    masks = g("mmdeploy::GatherTopk", parameters, index)
    return g.finish((rows[0], _FLOAT, 3), (rows[1], _INT, 2), (masks, _FLOAT, 3))


def _faster_rcnn() -> Graph:
    """The second stage of Faster R-CNN (TensorRT)."""
    g = _Builder("faster_rcnn")
    maps = [g.input(f"map_{k}", g.normal(1, 3, side, side)) for k, side in enumerate((16, 8))]
    low = g.uniform(0, 30, 10, 2)
    corners = np.concatenate([low, low + g.uniform(6, 30, 10, 2)], 1)
    rois = g("Concat", np.zeros((10, 1)), g.input("proposals", corners), axis=1)
    pooled = g("mmdeploy::MMCVMultiLevelRoiAlign", rois, *maps, pool_mode=1, roi_scale_factor=-1.0, **_LEVELS)
    flat = g("Reshape", pooled, [0, -1])
    scores = g("Slice", g("Softmax", g("MatMul", flat, g.normal(12, 4)), axis=1), [0], [3], [1])
    boxes = g.decoded(g("MatMul", flat, g.normal(12, 4, scale=0.2)), "proposals")
    return _suppressed(g, g("Unsqueeze", boxes, axes=[0]), g("Unsqueeze", scores, axes=[0]))


def _mask_rcnn() -> Graph:
    """The mask head of Mask R-CNN (TensorRT)."""
    g = _Builder("mask_rcnn")
    maps = [g.input(f"map_{k}", g.normal(2, 3, side, side)) for k, side in enumerate((16, 8))]
    low = g.uniform(0, 30, 2, 4, 2)
    dets = g.input("dets", np.concatenate([low, low + g.uniform(6, 30, 2, 4, 2), g.uniform(0, 1, 2, 4, 1)], 2))
    images = np.repeat(np.arange(2.0), 4).reshape(2, 4, 1)
    rois = g("Reshape", g("Concat", images, g("Slice", dets, [0], [4], [2]), axis=2), [-1, 5])
    pooled = g("mmdeploy::MMCVMultiLevelRoiAlign", rois, *maps, pool_mode=1, roi_scale_factor=-1.0, **_LEVELS)
    larger = g("Relu", g("ConvTranspose", pooled, g.normal(3, 3, 2, 2), strides=[2, 2]))
    masks = g("Sigmoid", g("Conv", larger, g.normal(2, 3, 1, 1)))
    return g.finish((g("Reshape", masks, [2, 4, 2, 4, 4]), _FLOAT, 5))


def _yolo(op_type: str) -> Graph:
    """The end of YOLO with a plugin of TensorRT."""
    g = _Builder(op_type)
    efficient = op_type == "EfficientNMS_TRT"
    scores = g("Mul", g("Sigmoid", g.rows("scores", 3)), g("Sigmoid", g.rows("objectness", 1)))
    place = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), -1).reshape(1, 20, 2)
    move, stretch = g("Split", g.rows("boxes", 4), outputs=2, axis=2)
    scale = 0.2 if efficient else 0.15
    centre, half = g("Mul", g("Add", move, place), scale), g("Mul", g("Exp", stretch), scale)
    boxes = g("Concat", g("Sub", centre, half), g("Add", centre, half), axis=2)
    if efficient:
        options: dict[str, Any] = {"max_output_boxes": 7, "background_class": -1, "score_activation": 0}
        options |= {"score_threshold": 0.1, "iou_threshold": 0.4, "class_agnostic": 0, "box_coding": 0}
    else:
        boxes = g("Unsqueeze", boxes, axes=[2])
        options = {"shareLocation": 1, "backgroundLabelId": -1, "numClasses": 3, "topK": 12, "keepTopK": 7}
        options |= {"scoreThreshold": 0.1, "iouThreshold": 0.4, "isNormalized": 1, "clipBoxes": 1}
    rows = g(f"TRT::{op_type}", boxes, scores, outputs=4, **options)
    types = (_INT32, _FLOAT, _FLOAT, _INT32 if efficient else _FLOAT)
    return g.finish(*zip(rows, types, (2, 3, 2, 2), strict=True))


def _rotated_rows(g: _Builder, count: int) -> str:
    """Rotated boxes (2, count, 5) from a head."""
    centre = g.input("centre", g.uniform(0, 30, 2, count, 2))
    size = g("Mul", g("Exp", g.input("size", g.normal(2, count, 2, scale=0.3))), 8.0)
    made: str = g("Concat", centre, size, g.input("angle", g.uniform(-1.5, 1.5, 2, count, 1)), axis=2)
    return made


def _rotated_retinanet() -> Graph:
    """Rotated RetinaNet in ONNX Runtime: NMSRotated, then the rows that it selects."""
    g = _Builder("rotated_retinanet")
    boxes, scores = _rotated_rows(g, 12), g("Sigmoid", g.input("scores", g.normal(2, 12, 3)))
    selected = g(
        "mmdeploy::NMSRotated",
        *(boxes, g("Transpose", scores, perm=[0, 2, 1])),
        iou_threshold=0.2,
        score_threshold=0.3,
    )
    image, label, box = g("Split", selected, outputs=3, axis=1)
    dets = g("GatherND", boxes, g("Concat", image, box, axis=1))
    values = g("GatherND", scores, g("Concat", image, box, label, axis=1))
    rows = g("Concat", dets, g("Unsqueeze", values, axes=[1]), axis=1)
    return g.finish(
        (rows, _FLOAT, 2), (g("Squeeze", label, axes=[1]), _INT, 1), (g("Squeeze", image, axes=[1]), _INT, 1)
    )


def _rotated_fcos() -> Graph:
    """Rotated FCOS in TensorRT."""
    g = _Builder("rotated_fcos")
    boxes, scores = _rotated_rows(g, 20), g("Sigmoid", g.input("scores", g.normal(2, 20, 3)))
    best = g.best(scores, 14)
    chosen = [g("mmdeploy::GatherTopk", rows, best) for rows in (boxes, scores)]
    rows = g("mmdeploy::TRTBatchedRotatedNMS", g("Unsqueeze", chosen[0], axes=[2]), chosen[1], outputs=2, **_NMS)
    return g.finish((rows[0], _FLOAT, 3), (rows[1], _INT, 2))


def _oriented_rcnn() -> Graph:
    """The second stage of Oriented R-CNN (TensorRT)."""
    g = _Builder("oriented_rcnn")
    maps = [g.input(f"map_{k}", g.normal(1, 3, side, side)) for k, side in enumerate((16, 8))]
    centre, size, angle = g.uniform(8, 50, 9, 2), g.uniform(8, 40, 9, 2), g.uniform(-1.5, 1.5, 9, 1)
    proposals = g.input("proposals", np.concatenate([centre, size, angle], 1))
    rois = g("Concat", np.zeros((9, 1)), proposals, axis=1)
    options = {**_LEVELS, "clockwise": 1, "roi_scale_factor": 1.2}
    flat = g("Reshape", g("mmdeploy::MMCVMultiLevelRotatedRoiAlign", rois, *maps, **options), [0, -1])
    scores = g("Slice", g("Softmax", g("MatMul", flat, g.normal(12, 4)), axis=1), [0], [3], [1])
    boxes = g("Add", proposals, g("MatMul", flat, g.normal(12, 5, scale=0.3)))
    given = g("Unsqueeze", boxes, axes=[0, 2]), g("Unsqueeze", scores, axes=[0])
    rows = g("mmdeploy::TRTBatchedRotatedNMS", *given, outputs=2, **_NMS)
    return g.finish((rows[0], _FLOAT, 3), (rows[1], _INT, 2))


def _roi_transformer() -> Graph:
    """A rotated second stage in ONNX Runtime: RoI align of rotated boxes, NMSRotated."""
    g = _Builder("roi_transformer")
    image = g.input("features", g.normal(1, 3, 12, 12))
    centre, size, angle = g.uniform(4, 20, 9, 2), g.uniform(4, 12, 9, 2), g.uniform(-1.5, 1.5, 9, 1)
    proposals = g.input("proposals", np.concatenate([centre, size, angle], 1))
    options = {"output_height": 2, "output_width": 2, "spatial_scale": 0.5, "sampling_ratio": 2}
    rois = g("Concat", np.zeros((9, 1)), proposals, axis=1)
    pooled = g("mmdeploy::MMCVRoIAlignRotated", image, rois, aligned=1, clockwise=0, **options)
    scores = g("Softmax", g("MatMul", g("Reshape", pooled, [0, -1]), g.normal(12, 3)), axis=1)
    given = g("Unsqueeze", proposals, axes=[0]), g("Unsqueeze", g("Transpose", scores, perm=[1, 0]), axes=[0])
    selected = g("mmdeploy::NMSRotated", *given, iou_threshold=0.2, score_threshold=0.3)
    return g.finish((selected, _INT, 2), (scores, _FLOAT, 2))


def _deformable_detr() -> Graph:
    """A layer of Deformable DETR's decoder and its end: attention, then the best queries (TensorRT)."""
    g = _Builder("deformable_detr")
    queries = g.input("queries", g.normal(2, 6, 8))
    memory = g.input("memory", g.normal(2, 26, 8))
    values = g("Reshape", g("MatMul", memory, g.normal(8, 8, scale=0.4)), [0, -1, 2, 4])
    offsets = g("Reshape", g("MatMul", queries, g.normal(8, 24, scale=0.02)), [0, 0, 2, 2, 3, 2])
    weights = g("Softmax", g("Reshape", g("MatMul", queries, g.normal(8, 12)), [-1, 6]), axis=1)
    points = g("Sigmoid", g.input("points", g.normal(2, 6, 2)))
    locations = g("Add", g("Unsqueeze", points, axes=[2, 3, 4]), offsets)
    attended = g(
        "mmdeploy::MMCVMultiScaleDeformableAttention",
        *(values, np.array([[4, 5], [2, 3]]), np.array([0, 20])),
        *(locations, g("Reshape", weights, [2, 6, 2, 2, 3])),
        im2col_step=64,
    )
    after = g("Add", queries, attended)
    scores, boxes = g("Sigmoid", g("MatMul", after, g.normal(8, 3))), g("Sigmoid", g("MatMul", after, g.normal(8, 4)))
    values, places = g("TopK", g("Reshape", scores, [0, -1]), [5], outputs=2, axis=1)
    labels = g("Mod", places, 3)
    chosen = g("mmdeploy::GatherTopk", boxes, g("Div", places, 3))
    return g.finish((chosen, _FLOAT, 3), (values, _FLOAT, 2), (labels, _INT, 2))


def _cornernet() -> Graph:
    """The corners of CornerNet: pooling in two directions, heat maps, the best places, their embeddings."""
    g = _Builder("cornernet")
    image = g.input("features", g.normal(2, 3, 4, 5))
    pooled = [g("mmcv::MMCVCornerPool", image, mode=mode) for mode in (0, 2)]
    heat = g("Sigmoid", g("Conv", g("Add", *pooled), g.normal(2, 3, 3, 3, scale=0.3), pads=[1, 1, 1, 1]))
    peaks = g("MaxPool", heat, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    kept = g("Mul", heat, g("Cast", g("Equal", heat, peaks), to=_FLOAT))
    values, places = g("TopK", g("Reshape", kept, [0, -1]), [4], outputs=2, axis=1)
    embeddings = g("mmdeploy::GatherTopk", g.rows("embeddings", 2), g("Mod", places, 20))
    return g.finish((values, _FLOAT, 2), (places, _INT, 2), (embeddings, _FLOAT, 3))


def _borderdet() -> Graph:
    """BorderDet: features along the sides of the boxes of a first stage, then suppression that lowers scores."""
    g = _Builder("borderdet")
    image = g.input("features", g.normal(1, 8, 4, 5))
    low = g.uniform(0, 3, 1, 20, 2)
    boxes = g.input("boxes", np.concatenate([low, low + g.uniform(1, 4, 1, 20, 2)], 2))
    borders = g("mmcv::MMCVBorderAlign", image, boxes, pool_size=4)
    rows = g("Reshape", g("Transpose", borders, perm=[0, 2, 1, 3]), [-1, 8])
    scores = g("Squeeze", g("Sigmoid", g("MatMul", rows, g.normal(8, 1))), axes=[1])
    options = {"iou_threshold": 0.3, "sigma": 0.5, "min_score": 0.05, "method": 1, "offset": 0}
    dets, index = g("mmcv::SoftNonMaxSuppression", g("Squeeze", boxes, axes=[0]), scores, outputs=2, **options)
    return g.finish((dets, _FLOAT, 2), (index, _INT, 1), (g("Gather", rows, index), _FLOAT, 2))


def _basicvsr() -> Graph:
    """Second-order alignment of BasicVSR++: a warped frame, then a modulated deformable convolution."""
    g = _Builder("basicvsr")
    frame, flow = g.input("frame", g.normal(1, 4, 6, 7)), g.input("flow", g.normal(1, 6, 7, 2, scale=0.2))
    place = np.stack(np.meshgrid(np.linspace(-1, 1, 7), np.linspace(-1, 1, 6)), -1)[None]
    options = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": 1}
    warped = g("mmdeploy::grid_sampler", frame, g("Add", flow, place), **options)
    same = {"pads": [1, 1, 1, 1]}
    offset = g("Conv", warped, g.normal(36, 4, 3, 3, scale=0.1), **same)
    mask = g("Sigmoid", g("Conv", warped, g.normal(18, 4, 3, 3, scale=0.1), **same))
    options = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "deform_groups": 2}
    weight, bias = g.normal(4, 4, 3, 3, scale=0.2), g.normal(4)
    result = g("mmdeploy::MMCVModulatedDeformConv2d", frame, offset, mask, weight, bias, **options)
    return g.finish((result, _FLOAT, 4))


GRAPHS = (
    _retinanet(),
    _condinst(),
    _faster_rcnn(),
    _mask_rcnn(),
    _yolo("EfficientNMS_TRT"),
    _yolo("BatchedNMSDynamic_TRT"),
    _rotated_retinanet(),
    _rotated_fcos(),
    _oriented_rcnn(),
    _roi_transformer(),
    _deformable_detr(),
    _cornernet(),
    _borderdet(),
    _basicvsr(),
)
