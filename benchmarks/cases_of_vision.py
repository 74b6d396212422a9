"""What vision.py measures: each operator on inputs of the size that it has in the model that it is known from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchvision import ops

import opbridge.vision as vision

__all__ = ["CASES", "Case"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One operator.

    Attributes:
        name: The operator, and what is special about its arguments.
        sizes: The sizes in words.
        function: What is called.
        make: Makes the arguments.
    """

    name: str
    sizes: str
    function: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]

    @property
    def is_of_torchvision(self) -> bool:
        """Whether torchvision has the operator, which is then what the engines are compared with."""
        return hasattr(ops, self.name.partition(",")[0])


def _boxes(count: int, width: float = 1333, height: float = 800) -> Tensor:
    """Proposals of an image of COCO: groups of ten around one object."""
    image = torch.tensor([width, height])
    centre = (torch.rand(-(-count // 10), 1, 2) * image + 20 * torch.randn(1, 10, 2)).reshape(-1, 2)[:count]
    half = torch.exp(torch.randn(count, 2) * 0.5 + 3.5)
    low, high = (centre - half).clamp(min=0), torch.minimum(centre + half, image)
    return torch.cat([torch.minimum(low, high - 1), high], 1)


def _regions(channels: int, height: int, width: int, count: int) -> tuple[Tensor, Tensor]:
    found = torch.cat([torch.zeros(count, 1), _boxes(count, 8.0 * width, 8.0 * height)], 1)
    return torch.randn(1, channels, height, width), found


def _rotated(count: int) -> Tensor:
    """Proposals of an image of DOTA (1024 pixels): groups of ten around one object."""
    groups = -(-count // 10)
    centre = (1024 * torch.rand(groups, 1, 2) + 6 * torch.randn(groups, 10, 2)).reshape(-1, 2)[:count]
    size = torch.exp(torch.randn(count, 2) * 0.4 + 3.4)
    return torch.cat([centre, size, math.pi * (torch.rand(count, 1) - 0.5)], 1)


def _quadrilaterals(count: int) -> Tensor:
    x, y, width, height, angle = _rotated(count)[..., None].unbind(1)
    along = torch.tensor([0.5, -0.5, -0.5, 0.5]) * (0.9 + 0.2 * torch.rand(count, 4)) * width
    across = torch.tensor([0.5, 0.5, -0.5, -0.5]) * (0.9 + 0.2 * torch.rand(count, 4)) * height
    corners = x + along * angle.cos() - across * angle.sin(), y + along * angle.sin() + across * angle.cos()
    return torch.stack(corners, 2).flatten(1)


def _cloud(count: int) -> Tensor:
    """A scan of a lidar, as nuScenes has them: dense near the sensor."""
    distance, turn = 2 + 15 * torch.rand(count).neg().log1p().neg(), 2 * math.pi * torch.rand(count)
    return torch.stack([distance * turn.cos(), distance * turn.sin(), 1.5 * torch.randn(count) - 1], 1)


def _solids(count: int) -> Tensor:
    """Boxes of cars around the points."""
    size = torch.tensor([4.6, 1.9, 1.7]) * torch.exp(0.1 * torch.randn(count, 3))
    centre = (_cloud(-(-count // 5))[:, None] + 0.5 * torch.randn(1, 5, 3)).reshape(-1, 3)[:count]
    return torch.cat([centre, size, 6 * torch.rand(count, 1) - 3], 1)


def _attention() -> tuple[Any, ...]:
    shapes = torch.tensor([[100, 134], [50, 67], [25, 34], [13, 17]])
    sizes = shapes.prod(1)
    value = torch.randn(1, int(sizes.sum()), 8, 32)
    centre = torch.rand(1, 300, 1, 1, 1, 2)
    locations = centre + 0.05 * torch.randn(1, 300, 8, 4, 4, 2)
    weights = torch.rand(1, 300, 8, 16).softmax(-1).reshape(1, 300, 8, 4, 4)
    return value, shapes, sizes.cumsum(0) - sizes, locations, weights


def _deformed(x: Tensor, offset: Tensor, weight: Tensor, mask: Tensor | None = None) -> Tensor:
    return ops.deform_conv2d(x, offset, weight, padding=1, mask=mask)


def _deformable(groups: int, has_mask: bool) -> tuple[Any, ...]:
    inputs = torch.randn(1, 256, 50, 68), 2 * torch.randn(1, 18 * groups, 50, 68)
    weight = torch.randn(256, 256 // groups, 3, 3) / 50
    return (*inputs, weight, *((torch.rand(1, 9 * groups, 50, 68),) if has_mask else ()))


def _voxels() -> tuple[Any, ...]:
    points = _cloud(250_000)
    return torch.cat([points, torch.rand(250_000, 2)], 1), [0.25, 0.25, 8.0], [-50.0, -50.0, -5.0, 50.0, 50.0, 3.0]


def _scattered() -> tuple[Any, ...]:
    points, *options = _voxels()
    return torch.randn(250_000, 16), vision.dynamic_voxelize(points, *options), "max"


def _roi_align(*options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, found: ops.roi_align(x, found, 7, 0.125, *options)


def _coco() -> tuple[Any, ...]:
    return _regions(256, 100, 134, 1000)


def _sensitive() -> tuple[Any, ...]:
    return _regions(490, 100, 134, 300)


_COCO = "1000 boxes, 256 x 100 x 134"
_SENSITIVE = "300 boxes, 490 x 100 x 134"
_DCN = "256 x 50 x 68, 3 x 3"

_TORCHVISION = (
    Case("nms", "2000 boxes", ops.nms, lambda: (_boxes(2000), torch.rand(2000), 0.7)),
    Case("roi_align, aligned", _COCO, _roi_align(2, True), _coco),
    Case("roi_align", _COCO, _roi_align(2, False), _coco),
    Case("roi_align, adaptive", _COCO, _roi_align(0, True), _coco),
    Case("roi_pool", _COCO, lambda x, found: ops.roi_pool(x, found, 7, 0.125), _coco),
    Case("ps_roi_align", _SENSITIVE, lambda x, found: ops.ps_roi_align(x, found, 7, 0.125, 2), _sensitive),
    Case("ps_roi_align, adaptive", _SENSITIVE, lambda x, found: ops.ps_roi_align(x, found, 7, 0.125), _sensitive),
    Case("ps_roi_pool", _SENSITIVE, lambda x, found: ops.ps_roi_pool(x, found, 7, 0.125), _sensitive),
    Case("deform_conv2d", _DCN, _deformed, lambda: _deformable(1, False)),
    Case("deform_conv2d, with a mask", _DCN, _deformed, lambda: _deformable(1, True)),
    Case("deform_conv2d, 4 groups", _DCN, _deformed, lambda: _deformable(4, True)),
)

_BOXES = (
    Case("box_iou_rotated", "2000 x 100", vision.box_iou_rotated, lambda: (_rotated(2000), _rotated(100))),
    Case("box_iou_quadri", "2000 x 100", vision.box_iou_quadri, lambda: (_quadrilaterals(2000), _quadrilaterals(100))),
    Case("boxes_iou3d", "500 x 200", vision.boxes_iou3d, lambda: (_solids(500), _solids(200))),
    Case(
        "nms_rotated",
        "2000 boxes, 15 classes",
        vision.nms_rotated,
        lambda: (_rotated(2000)[None], torch.rand(1, 15, 2000) ** 8, 0.1, 0.05),
    ),
    Case("nms3d", "1000 boxes", vision.nms3d, lambda: (_solids(1000), torch.rand(1000), 0.2)),
    Case(
        "nms_match",
        "1000 boxes",
        vision.nms_match,
        lambda: (_boxes(1000)[None], torch.rand(1, 1, 1000), 0.5, 0.05),
    ),
    Case("soft_nms", "1000 boxes", vision.soft_nms, lambda: (_boxes(1000), torch.rand(1000), 0.3, 0.5, 0.05)),
    Case(
        "roi_align_rotated",
        "512 boxes, 256 x 128 x 128",
        vision.roi_align_rotated,
        lambda: (*_rotated_regions(), 7, 7, 0.125, 2, True, True),
    ),
    Case(
        "roi_align_rotated, adaptive",
        "512 boxes, 256 x 128 x 128",
        vision.roi_align_rotated,
        lambda: (*_rotated_regions(), 7, 7, 0.125, 0, True, True),
    ),
)


def _rotated_regions() -> tuple[Tensor, Tensor]:
    return torch.randn(1, 256, 128, 128), torch.cat([torch.zeros(512, 1), _rotated(512)], 1)


_IMAGES = (
    Case("ms_deform_attn", "4 levels, 300 queries", vision.ms_deform_attn, _attention),
    Case(
        "border_align",
        "256 x 100 x 134, 13400 boxes",
        vision.border_align,
        lambda: (torch.randn(1, 256, 100, 134), _boxes(13400, 134, 100)[None], 10),
    ),
    Case("corner_pool", "128 x 128 x 128", vision.corner_pool, lambda: (torch.randn(1, 128, 128, 128), "top")),
    Case(
        "running_extremes",
        "128 x 128 x 128",
        vision.running_extremes,
        lambda: (torch.randn(1, 128, 128, 128), 2, True),
    ),
    Case(
        "carafe",
        "256 x 50 x 68, 5 x 5, twice as large",
        vision.carafe,
        lambda: (torch.randn(1, 256, 50, 68), torch.randn(1, 25, 100, 136).softmax(1), 5, 1, 2),
    ),
    Case(
        "upfirdn2d",
        "32 x 256 x 256, 4 x 4, twice as large",
        vision.upfirdn2d,
        lambda: (torch.randn(1, 32, 256, 256), torch.rand(4, 4) / 4, [2, 2], [1, 1], [2, 1, 2, 1], False, 4.0),
    ),
    Case(
        "bias_act",
        "64 x 256 x 256",
        vision.bias_act,
        lambda: (torch.randn(1, 64, 256, 256), torch.randn(64), 1, "lrelu", 0.2, None, 256.0),
    ),
)

_POINTS = (
    Case(
        "ball_query",
        "1024 queries, 16384 points",
        vision.ball_query,
        lambda: (_cloud(1024)[None], _cloud(16384)[None], 0.0, 1.6, 32),
    ),
    Case("knn", "4096 queries, 1024 points", vision.knn, lambda: (_cloud(4096)[None], _cloud(1024)[None], 3)),
    Case(
        "furthest_point_sample",
        "1024 of 16384 points",
        vision.furthest_point_sample,
        lambda: (_cloud(16384)[None], 1024),
    ),
    Case(
        "group_points",
        "64 x 16384, 1024 x 32",
        vision.group_points,
        lambda: (torch.randn(1, 64, 16384), torch.randint(16384, (1, 1024, 32))),
    ),
    Case(
        "three_interpolate",
        "256 x 1024, 4096 x 3",
        vision.three_interpolate,
        lambda: (torch.randn(1, 256, 1024), torch.randint(1024, (1, 4096, 3)), torch.rand(1, 4096, 3)),
    ),
    Case("dynamic_voxelize", "250000 points", vision.dynamic_voxelize, _voxels),
    Case("hard_voxelize", "250000 points", vision.hard_voxelize, lambda: (*_voxels(), 20, 30000)),
    Case("dynamic_scatter", "250000 points, 16 channels", vision.dynamic_scatter, _scattered),
    Case(
        "points_in_boxes_all",
        "34720 points, 40 boxes",
        vision.points_in_boxes_all,
        lambda: (_cloud(34720)[None], _solids(40)[None]),
    ),
    Case(
        "points_in_boxes_part",
        "34720 points, 40 boxes",
        vision.points_in_boxes_part,
        lambda: (_cloud(34720)[None], _solids(40)[None]),
    ),
)

CASES = (*_TORCHVISION, *_BOXES, *_IMAGES, *_POINTS)
