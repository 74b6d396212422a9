"""Non-maximum suppression, also of boxes without an area."""

from __future__ import annotations

from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation

_ALL = 2**63 - 1


@translation(
    "torchvision::nms", overrides="ONNX takes any two opposite corners: a box with its corners exchanged has an area"
)
def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """The indices (int64) of the boxes (N, 4) that suppression keeps, by descending score.

    torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor

    In torchvision, a box whose second corner is not below and right of the first overlaps no other. So it is in ONNX if
    its width or height is 0.
    """
    first, second = op.Split(dets, axis=1, num_outputs=2)
    boxes = op.Unsqueeze(op.Concat(first, op.Max(first, second), axis=1), op.Constant(value_ints=[0]))
    ranked = op.Unsqueeze(scores, op.Constant(value_ints=[0, 1]))
    threshold = op.Constant(value_float=iou_threshold)
    found = op.NonMaxSuppression(boxes, ranked, op.Constant(value_int=_ALL), threshold)
    return op.Gather(found, op.Constant(value_int=2), axis=1)
