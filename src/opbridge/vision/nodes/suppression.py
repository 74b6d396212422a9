"""Non-maximum suppression, most of it with a fixed number of results."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.inference import find_shape
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.vision.old_nodes import OldSite, old_node

_PLUGINS = "TensorRT: plugin/efficientNMSPlugin/README.md"
_BATCHED_PLUGIN = "TensorRT: plugin/batchedNMSPlugin/README.md"


@dataclasses.dataclass(frozen=True)
class _Detections:
    """The best boxes of each image, and rows of zeros after them; the label and the index of such a row are -1.

    Attributes:
        boxes: (images, kept, 4 or 5)
        scores: (images, kept)
        labels: (images, kept), int64
        indices: (images, kept), int64: the position of the box in the input.
        valid: (images, kept), bool
    """

    boxes: ir.Value
    scores: ir.Value
    labels: ir.Value
    indices: ir.Value
    valid: ir.Value


@old_node(
    "mmdeploy::NMSRotated",
    source="mmdeploy: docs/en/06-custom-ops/onnxruntime.md, mmdeploy/mmcv/ops/nms_rotated.py",
)
def nms_rotated(site: OldSite) -> None:
    """Inputs (images, boxes, 5) and (images, classes, boxes), rows of (image, class, box); the document differs."""
    made = _rotated(site, site.require(0, "boxes"), site.require(1, "scores"), *_thresholds(site))
    site.finish(made)


@old_node(
    "mmdeploy::TRTBatchedNMS",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/mmcv/ops/nms.py, "
    "csrc/mmdeploy/backend_ops/tensorrt/batched_nms",
)
def trt_batched_nms(site: OldSite) -> None:
    """Outputs: boxes with their scores, labels, and indices if ``return_index`` is set."""
    _finish_batched(site, rotated=False)


@old_node(
    "mmdeploy::TRTBatchedRotatedNMS",
    source="mmdeploy: docs/en/06-custom-ops/tensorrt.md, mmdeploy/mmcv/ops/nms_rotated.py, "
    "csrc/mmdeploy/backend_ops/tensorrt/batched_rotated_nms",
)
def trt_batched_rotated_nms(site: OldSite) -> None:
    """Outputs: boxes with their scores, and labels."""
    _finish_batched(site, rotated=True)


@old_node("TRT::BatchedNMS_TRT", "TRT::BatchedNMSDynamic_TRT", source=_BATCHED_PLUGIN)
def batched_nms_plugin(site: OldSite) -> None:
    """Outputs: the number of detections, boxes, scores, and classes as floating-point numbers."""
    if not site.get("isNormalized", default=1):
        raise CannotExpress("isNormalized is 0: sizes of boxes then count the last pixel")
    found = _detect(site, rotated=False)
    labels = site.op.Cast(found.labels, to=int(site.dtype(found.scores)))
    site.finish(_count(site, found), found.boxes, found.scores, labels)


@old_node("TRT::EfficientNMS_TRT", source=_PLUGINS)
def efficient_nms_plugin(site: OldSite) -> None:
    """Outputs: the number of detections, boxes as corners, scores, classes."""
    op, boxes, scores = site.op, site.require(0, "boxes"), site.require(1, "scores")
    if site.input(2) is not None:
        raise CannotExpress("its third input, the anchors, asks for decoded boxes")
    if site.get("class_agnostic", default=0):
        raise CannotExpress("class_agnostic is set")
    if site.get("box_coding", default=0):
        centre_x, centre_y, width, height = op.Split(boxes, [1, 1, 1, 1], axis=-1, outputs=4)
        halves = op.Mul(width, 0.5), op.Mul(height, 0.5)
        low = op.Sub(centre_x, halves[0]), op.Sub(centre_y, halves[1])
        boxes = op.Concat(*low, op.Add(centre_x, halves[0]), op.Add(centre_y, halves[1]), axis=-1)
    if site.get("score_activation", default=0):
        scores = op.Sigmoid(scores)
    found = _detect(site, boxes, scores, rotated=False, most_tried=4096)
    zero = op.constant(np.int64(0))
    labels = op.Where(found.valid, found.labels, zero)
    site.finish(_count(site, found), found.boxes, found.scores, op.Cast(labels, to=int(ir.DataType.INT32)))


_METHODS = ("naive", "linear", "gaussian")


@old_node("mmcv::SoftNonMaxSuppression", source="mmcv: mmcv/ops/nms.py")
def soft_nms(site: OldSite) -> None:
    """Outputs: boxes with their lowered scores, and indices; the method is a number."""
    boxes, scores = site.require(0, "boxes"), site.require(1, "scores")
    site.equate((boxes, 0), (scores, 0))
    made = site.operators(
        "opbridge_vision::soft_nms",
        *(boxes, scores),
        outputs=[(site.dtype(boxes), [None, 5]), (ir.DataType.INT64, [None])],
        **{name: float(site.get(name)) for name in ("iou_threshold", "sigma", "min_score")},
        method=_METHODS[site.get("method", default=1)],
        offset=site.get("offset", default=0),
    )
    site.finish(*made)


def _finish_batched(site: OldSite, *, rotated: bool) -> None:
    op, found = site.op, _detect(site, rotated=rotated)
    rows = op.Concat(found.boxes, op.Unsqueeze(found.scores, [2]), axis=2)
    # The plugin writes int32; a model that declares int64 gets int64.
    integers = [op.Cast(value, to=int(ir.DataType.INT32)) for value in (found.labels, found.indices)]
    site.finish(rows, *integers)


def _count(site: OldSite, found: _Detections) -> ir.Value:
    number = site.op.ReduceSum(site.op.Cast(found.valid, to=int(ir.DataType.INT32)), [1], keepdims=1)
    return site.op.cast(number, ir.DataType.INT32)


def _thresholds(site: OldSite) -> tuple[float, float]:
    """The thresholds of the overlap and of the score."""
    overlap = site.get("iou_threshold", "iouThreshold")
    return float(overlap), float(site.get("score_threshold", "scoreThreshold", default=0.0))


def _rotated(site: OldSite, boxes: ir.Value, scores: ir.Value, overlap: float, least: float) -> ir.Value:
    site.equate((boxes, 0), (scores, 0))
    site.equate((boxes, 1), (scores, 2))
    made: ir.Value = site.operator(
        "opbridge_vision::nms_rotated",
        *(boxes, scores),
        dtype=ir.DataType.INT64,
        sizes=[None, 3],
        iou_threshold=overlap,
        score_threshold=least,
    )
    return made


def _detect(
    site: OldSite,
    boxes: ir.Value | None = None,
    scores: ir.Value | None = None,
    *,
    rotated: bool,
    most_tried: int = -1,
) -> _Detections:
    """Suppression in each class, then the best boxes of all classes.

    Args:
        site: The node.
        boxes: (images, boxes, 4), or (images, boxes, 1 or classes, 4); by default the first input. Rotated boxes have
            five numbers.
        scores: (images, boxes, classes); by default the second input.
        rotated: Whether the boxes are rotated.
        most_tried: The largest number of boxes of a class, the best first, that are considered; -1 for all.
    """
    op = site.op
    boxes = site.require(0, "boxes") if boxes is None else boxes
    scores = site.require(1, "scores") if scores is None else scores
    size = 5 if rotated else 4
    if site.rank(boxes) == 3:
        boxes = op.Unsqueeze(boxes, [2])
    assert boxes.shape is not None
    shape = find_shape(scores)
    classes = shape[2] if shape is not None and isinstance(shape[2], int) else site.get("num_classes", "numClasses")
    is_shared = boxes.shape[2] == 1 or bool(site.get("shareLocation", default=0))
    lowest = op.like(float(np.finfo(site.dtype(scores).numpy()).min), scores)

    # The best boxes of each class: (images, classes, tried).
    ranked = op.Transpose(scores, perm=[0, 2, 1])
    background = site.get("background_label_id", "backgroundLabelId", "background_class", default=-1)
    if 0 <= background < classes:
        ranked = op.Where(np.arange(classes).reshape(-1, 1) == background, lowest, ranked)
    tried = op.Slice(op.Shape(ranked), [2], [3])
    most = site.get("topk", "topK", default=most_tried)
    if most > 0:
        tried = op.Min(tried, op.constant(np.array([most], np.int64)))
    values, places = op.TopK(ranked, tried, axis=2, outputs=2)
    batch = op.Slice(op.Shape(ranked), [0], [1])
    flat = op.Concat(batch, op.constant(np.array([-1], np.int64)), axis=0)
    if is_shared:
        positions = op.Unsqueeze(op.Reshape(places, flat), [2])
        candidates = op.GatherND(op.Squeeze(boxes, [2]), positions, batch_dims=1)
    else:
        by_class = op.Transpose(boxes, perm=[0, 2, 1, 3])
        chosen = op.GatherND(by_class, op.Unsqueeze(places, [3]), batch_dims=2)
        candidates = op.Reshape(chosen, op.Concat(batch, op.constant(np.array([-1, size], np.int64)), axis=0))

    # Every class of every image is an image of its own, whose boxes have one class.
    kept = _select(site, candidates, values, tried, size)
    scored = op.Where(op.Reshape(kept, flat), op.Reshape(values, flat), lowest)
    if not is_shared:
        offsets = np.arange(classes).reshape(1, -1, 1)
        number = op.Slice(op.Shape(ranked), [2], [3])
        places = op.Add(places, op.Mul(op.constant(offsets.astype(np.int64)), number))
    found = _best(site, candidates, scored, op.Reshape(places, flat), tried, lowest)
    # Shape inference does not know the rank of what is reshaped to sizes that are computed.
    for name, value in vars(found).items():
        value.shape = ir.Shape([None, None, size] if name == "boxes" else [None, None])
    return found


def _select(site: OldSite, candidates: ir.Value, values: ir.Value, tried: ir.Value, size: int) -> ir.Value:
    """Whether each candidate is kept: (images * classes, tried), bool."""
    op, overlap_least = site.op, _thresholds(site)
    one, any_number = (op.constant(np.array([number], np.int64)) for number in (1, -1))
    boxes = op.Reshape(candidates, op.Concat(any_number, tried, op.constant(np.array([size], np.int64)), axis=0))
    # The names say that the two inputs have the same sizes, which the body of nms_rotated needs.
    lists, count = op.fresh("lists"), op.fresh("tried")
    boxes.shape = ir.Shape([lists, count, size])
    scores = op.Reshape(values, op.Concat(any_number, one, tried, axis=0))
    scores.shape = ir.Shape([lists, 1, count])
    if size == 5:
        selected = _rotated(site, boxes, scores, *overlap_least)
    else:
        thresholds = (op.constant(np.array([number], np.float32)) for number in overlap_least)
        selected = op.NonMaxSuppression(boxes, scores, tried, *thresholds)
    rows = op.Gather(selected, [0, 2], axis=1)
    nothing = op.ConstantOfShape(op.Shape(op.Squeeze(scores, [1])), value=ir.tensor(np.zeros(1, np.int64)))
    number = op.Slice(op.Shape(rows), [0], [1])
    marks = op.ConstantOfShape(number, value=ir.tensor(np.ones(1, np.int64)))
    kept: ir.Value = op.Greater(op.ScatterND(nothing, rows, marks), op.constant(np.int64(0)))
    return kept


def _best(
    site: OldSite, candidates: ir.Value, scored: ir.Value, places: ir.Value, tried: ir.Value, lowest: ir.Value
) -> _Detections:
    """The best of all classes, with rows added for images that have too few candidates."""
    op = site.op
    keep = site.get("keep_topk", "keepTopK", "max_output_boxes")
    scored = op.Pad(scored, [0, 0, 0, keep], lowest)
    places = op.Pad(places, [0, 0, 0, keep], op.constant(np.int64(-1)))
    candidates = op.Pad(candidates, [0, 0, 0, 0, keep, 0], op.like(0, candidates))
    best, order = op.TopK(scored, op.constant(np.array([keep], np.int64)), axis=1, outputs=2)
    valid = op.Greater(best, lowest)
    boxes = op.GatherND(candidates, op.Unsqueeze(order, [2]), batch_dims=1)
    if site.get("clip_boxes", "clipBoxes", default=_clips_by_default(site)):
        boxes = op.Clip(boxes, op.like(0, boxes), op.like(1, boxes))
    absent = op.constant(np.int64(-1))
    labels = op.Div(order, op.Max(tried, op.constant(np.array([1], np.int64))))
    return _Detections(
        op.Where(op.Unsqueeze(valid, [2]), boxes, op.like(0, boxes)),
        op.Where(valid, best, op.like(0, best)),
        op.Where(valid, labels, absent),
        op.Where(valid, op.GatherElements(places, order, axis=1), absent),
        valid,
    )


def _clips_by_default(site: OldSite) -> int:
    """The plugins for BatchedNMS clip boxes to [0, 1] unless they are told not to."""
    return int(not site.node.op_type.startswith("EfficientNMS"))
