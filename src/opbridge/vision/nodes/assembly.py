"""Nodes that are one operator of ``ops/``."""

from __future__ import annotations

import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.vision.old_nodes import OldSite, old_node


@old_node("mmcv::MMCVCARAFE", "mmcv::MMCVCARAFENaive", source="mmcv: mmcv/ops/carafe.py")
def carafe(site: OldSite) -> None:
    """CARAFE; the factor is written as a floating-point number."""
    features, masks = site.require(0, "features"), site.require(1, "masks")
    made = site.operator(
        "opbridge_vision::carafe",
        *(features, masks),
        dtype=site.dtype(features),
        sizes=[site.size(features, 0), site.size(features, 1), site.size(masks, 2), site.size(masks, 3)],
        kernel_size=site.get("kernel_size"),
        group_size=site.get("group_size"),
        scale_factor=round(site.get("scale_factor")),
    )
    site.finish(made)


@old_node("mmcv::MMCVBorderAlign", source="mmcv: mmcv/ops/border_align.py, docs/en/deployment/mmcv_ops_definition.md")
def border_align(site: OldSite) -> None:
    """Border align."""
    image, boxes = site.require(0, "input"), site.require(1, "boxes")
    site.equate((image, 0), (boxes, 0))
    made = site.operator(
        "opbridge_vision::border_align",
        *(image, boxes),
        dtype=site.dtype(image),
        sizes=[site.size(image, 0), None, site.size(boxes, 1), 4],
        pool_size=site.get("pool_size"),
    )
    site.finish(made)


_DIRECTIONS = ("top", "bottom", "left", "right")


@old_node("mmcv::MMCVCornerPool", source="mmcv: docs/en/deployment/mmcv_ops_definition.md")
def corner_pool(site: OldSite) -> None:
    """Corner pooling; the mode is a number."""
    image = site.require(0, "input")
    made = site.operator(
        "opbridge_vision::corner_pool",
        image,
        dtype=site.dtype(image),
        sizes=[site.size(image, axis) for axis in range(4)],
        mode=_DIRECTIONS[site.get("mode")],
    )
    site.finish(made)


@old_node("mmcv::cummax", "mmcv::cummin", source="mmcv: docs/en/deployment/mmcv_ops_definition.md")
def running_extremes(site: OldSite) -> None:
    """torch.cummax and torch.cummin."""
    values = site.require(0, "input")
    sizes = [site.size(values, axis) for axis in range(site.rank(values))]
    made = site.operators(
        "opbridge_vision::running_extremes",
        values,
        outputs=[(site.dtype(values), sizes), (ir.DataType.INT64, sizes)],
        dim=site.get("dim"),
        largest=int(site.node.op_type == "cummax"),
    )
    site.finish(*made)


@old_node(
    "mmdeploy::NMSMatch",
    source="mmdeploy: docs/en/06-custom-ops/onnxruntime.md, mmdeploy/mmcv/ops/nms_match.py",
)
def nms_match(site: OldSite) -> None:
    """The thresholds are inputs, which the document describes as attributes."""
    boxes, scores = site.require(0, "boxes"), site.require(1, "scores")
    site.equate((boxes, 0), (scores, 0))
    site.equate((boxes, 1), (scores, 2))
    made = site.operator(
        "opbridge_vision::nms_match",
        *(boxes, scores),
        dtype=ir.DataType.INT64,
        sizes=[None, 4],
        iou_threshold=_threshold(site, 2, "iou_thr"),
        score_threshold=_threshold(site, 3, "score_thr"),
    )
    site.finish(made)


def _threshold(site: OldSite, position: int, attribute: str) -> float:
    if site.input(position) is None:
        return float(site.get(attribute))
    constant = known(site.input(position))
    if constant is None:
        raise CannotExpress(f"its input {position}, a threshold, is not constant")
    return float(constant.reshape(-1)[0])
