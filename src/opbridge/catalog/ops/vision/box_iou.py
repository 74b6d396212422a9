"""The overlap of rotated boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, rewrite
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::RotatedOverlaps", "box_iou.h")

_MARGIN = 1e-5
"""How far a point may be outside of a box: a further point near a corner does not change the area, a lost one does."""
_TINY = 1e-14
"""The smallest area of a box, and the smallest determinant of lines that are not parallel."""


@rewrite("torchvision.ops.boxes.box_iou")
def box_iou(original: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Intersection over union of all pairs of rotated boxes (N, ..) and (M, ..): (N, M), float32.

    torchvision's operator ``box_iou_rotated`` has no shape function, so it can't be captured. As there, the corners of
    an intersection are crossings of edges and corners of one box inside of the other.
    """
    from torchvision.ops.boxes import box_convert

    if fmt not in ("cxcywhr", "xywhr", "xyxyxyxy"):
        return NotImplemented
    if fmt != "cxcywhr":
        boxes1, boxes2 = (box_convert(boxes, in_fmt=fmt, out_fmt="cxcywhr") for boxes in (boxes1, boxes2))
    return rotated_overlaps(boxes1, boxes2)  # type: ignore[no-any-return]


@torch.library.custom_op("opbridge::rotated_overlaps", mutates_args=())
def rotated_overlaps(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The same for boxes with centre x and y, width, height and angle in degrees."""
    return overlaps(boxes1, boxes2)


@rotated_overlaps.register_fake
def _shape(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    return boxes1.new_empty(boxes1.shape[0], boxes2.shape[0], dtype=torch.float32)


@kernel_translation("opbridge::rotated_overlaps")
def overlaps_with_kernel(boxes1: Any, boxes2: Any) -> Any:
    """``rotated_overlaps`` as a custom node with a kernel.

    rotated_overlaps(Tensor boxes1, Tensor boxes2) -> Tensor
    """
    return custom_node("opbridge::RotatedOverlaps", boxes1, boxes2)


@body_for("opbridge::RotatedOverlaps")
def body(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return overlaps(boxes1, boxes2)


@decomposition("opbridge::rotated_overlaps")
def overlaps(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """From the corners of each intersection.

    rotated_overlaps(Tensor boxes1, Tensor boxes2) -> Tensor
    """
    first, second = boxes1[:, None], boxes2[None]
    # Relative to the middle between both, which is more precise.
    shift = (first[..., :2] - second[..., :2])[..., None, :] / 2
    corners = (shift + _corners(first), _corners(second) - shift)
    edges = [box.roll(-1, -2) - box for box in corners]
    crossings, meet = _crossings(corners, edges)
    points = torch.cat([crossings, *corners], -2)
    counts = torch.cat([meet, _inside(corners[0], corners[1], edges[1]), _inside(corners[1], corners[0], edges[0])], -1)
    areas = [box[..., 2] * box[..., 3] for box in (first, second)]
    shared = torch.where(counts.sum(-1) > 2, _area(points, counts), 0.0)
    has_area = (areas[0] >= _TINY) & (areas[1] >= _TINY)
    union = torch.where(has_area, areas[0] + areas[1] - shared, 1.0)
    return torch.where(has_area, shared / union, 0.0).to(torch.float32)


def _corners(boxes: Tensor) -> Tensor:
    """The corners of boxes (.., 5) relative to their centers, in order: (.., 4, 2)."""
    angle = boxes[..., 4] * (math.pi / 180)
    cosine, sine = angle.cos() / 2, angle.sin() / 2
    width, height = boxes[..., 2], boxes[..., 3]
    one = torch.stack([sine * height + cosine * width, cosine * height - sine * width], -1)
    next_one = torch.stack([cosine * width - sine * height, -cosine * height - sine * width], -1)
    return torch.stack([one, next_one, -one, -next_one], -2)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - b[..., 0] * a[..., 1]


def _crossings(corners: tuple[Tensor, Tensor], edges: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The points where the lines of two boxes cross, (.., 16, 2), and whether both edges contain them, (.., 16)."""
    start, edge = corners[0][..., :, None, :], edges[0][..., :, None, :]
    other_start, other_edge = corners[1][..., None, :, :], edges[1][..., None, :, :]
    determinant = _cross(other_edge, edge)
    is_crossing = determinant.abs() > _TINY
    divisor = torch.where(is_crossing, determinant, 1.0)
    between = other_start - start
    share, other_share = _cross(other_edge, between) / divisor, _cross(edge, between) / divisor
    for part in (share, other_share):
        is_crossing = is_crossing & (part > -_MARGIN) & (part < 1 + _MARGIN)
    return (start + edge * share[..., None]).flatten(-3, -2), is_crossing.flatten(-2)


def _inside(points: Tensor, corners: Tensor, edges: Tensor) -> Tensor:
    """Whether points (.., 4, 2) are inside of a box."""
    side, other_side = edges[..., :1, :], -edges[..., 3:, :]
    way = points - corners[..., :1, :]
    parts = (
        ((way * side).sum(-1), (side * side).sum(-1)),
        ((way * other_side).sum(-1), (other_side * other_side).sum(-1)),
    )
    (along, length), (across, other_length) = parts
    return (along > -_MARGIN) & (along < length + _MARGIN) & (across > -_MARGIN) & (across < other_length + _MARGIN)


def _area(points: Tensor, counts: Tensor) -> Tensor:
    """The area of the convex polygon whose corners are the points (.., n, 2) that count (.., n), in any order."""
    number = counts.sum(-1)[..., None, None].clamp_min(1)
    center = torch.where(counts[..., None], points, 0.0).sum(-2, keepdim=True) / number
    relative = points - center
    a_point = counts.to(torch.int64).argmax(-1)[..., None, None].expand(*relative.shape[:-2], 1, 2)
    relative = torch.where(counts[..., None], relative, relative.gather(-2, a_point))
    order = torch.atan2(relative[..., 1], relative[..., 0]).argsort(-1)
    ring = relative.gather(-2, order[..., None].expand_as(relative))
    return _cross(ring, ring.roll(-1, -2)).sum(-1).abs() / 2
