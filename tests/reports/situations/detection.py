"""Detectors: regions, suppressed boxes, chosen queries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torchvision
from side_by_side import Situation
from torch import nn
from torch.export import Dim
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign

from situations.report import Report

D = Dim.DYNAMIC


class RoiAlign(nn.Module):
    def forward(self, x, b):
        return torchvision.ops.roi_align(x, b, output_size=(7, 7), spatial_scale=1 / 4, sampling_ratio=2)


class RoiAlignOfLists(nn.Module):
    """Two scales of a pyramid, each box from the level that fits its area."""

    def __init__(self):
        super().__init__()
        self.pool = MultiScaleRoIAlign(["0", "1"], output_size=3, sampling_ratio=2)

    def forward(self, fine, coarse, boxes):
        return self.pool({"0": fine, "1": coarse}, [boxes], [(64, 64)])


class BatchedNms(nn.Module):
    def forward(self, boxes, scores, labels):
        return torchvision.ops.batched_nms(boxes, scores, labels, 0.4)


class YoloWithNms(nn.Module):
    """A head with random weights, its 30 best candidates, and their suppression."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.SiLU())
        self.head = nn.Conv2d(8, 4 + 5, 1)

    def forward(self, image):
        x = self.head(self.backbone(image)).flatten(2)[0].T
        centers = torch.arange(x.shape[0])[:, None] % 8 * 4.0 + x[:, :2].tanh() * 3
        sizes = torch.exp(x[:, 2:4]) * 6
        boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], 1)
        scores, labels = x[:, 4:].sigmoid().max(1)
        scores, order = scores.topk(30)
        boxes, labels = boxes[order], labels[order]
        kept = torchvision.ops.nms(boxes, scores, 0.5)
        return boxes[kept], scores[kept], labels[kept]


class ChoosesQueries(nn.Module):
    """The encoder's best tokens become queries, which sample the map where they point (RT-DETR, D-FINE)."""

    def __init__(self, dim=8, queries=6):
        super().__init__()
        self.queries = queries
        self.project, self.score = nn.Conv2d(3, dim, 3, 2, 1), nn.Linear(dim, 4)
        self.offset, self.box = nn.Linear(dim, 8), nn.Linear(dim, 4)

    def forward(self, image):
        feature = self.project(image)
        tokens = feature.flatten(2).transpose(1, 2)
        scores = self.score(tokens)
        _, chosen = torch.topk(scores.max(-1).values, self.queries, dim=1)
        index = chosen.unsqueeze(-1)
        target = tokens.gather(1, index.expand(-1, -1, tokens.shape[-1]))
        points = (self.box(target)[..., None, :2] + 0.1 * self.offset(target).unflatten(-1, (4, 2))).tanh()
        sampled = F.grid_sample(feature, points, align_corners=False).mean(-1).transpose(1, 2)
        return self.box(target + sampled).sigmoid(), scores.gather(1, index.expand(-1, -1, 4))


def tiny_faster_rcnn() -> nn.Module:
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
    backbone.out_channels = 8
    anchors = AnchorGenerator(((16, 32),), ((0.5, 1.0),))
    pool = MultiScaleRoIAlign(["0"], output_size=4, sampling_ratio=2)
    sizes = {"min_size": 64, "max_size": 96, "rpn_pre_nms_top_n_test": 40, "rpn_post_nms_top_n_test": 10}
    return FasterRCNN(backbone, 3, rpn_anchor_generator=anchors, box_roi_pool=pool, **sizes).eval()


def boxes_within(count: int, extent: float, generator: torch.Generator | None = None) -> torch.Tensor:
    corner = torch.rand(count, 2, generator=generator) * extent * 0.6
    return torch.cat([corner, corner + 2 + torch.rand(count, 2, generator=generator) * extent * 0.35], 1)


def regions(count: int, generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.cat([torch.randint(2, (count, 1), generator=generator).float(), boxes_within(count, 40, generator)], 1)


def new_regions(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    count, height, width = sizes["boxes"], sizes["height"], sizes["width"]
    return (torch.rand(2, 4, height, width, generator=generator), regions(count, generator)), {}


def new_boxes(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    count = sizes["n"]
    labels = torch.randint(0, 2, (count,), generator=generator)
    return (boxes_within(count, 40, generator), torch.rand(count, generator=generator), labels), {}


def new_pyramid(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    maps = (torch.rand(1, 4, 16, 16, generator=generator), torch.rand(1, 4, 8, 8, generator=generator))
    return (*maps, boxes_within(sizes["n"], 60, generator)), {}


REPORTS = (
    Report(
        "roi_align",
        "https://github.com/pytorch/vision/issues/9251",
        lambda: Situation(
            RoiAlign(),
            (torch.rand(2, 4, 10, 12), regions(6)),
            dynamic_shapes={"x": {2: Dim("height"), 3: Dim("width")}, "b": {0: Dim("boxes")}},
            fresh=new_regions,
        ),
    ),
    Report(
        "roi_align, with the example's boxes in plain sight",
        "https://github.com/pytorch/pytorch/issues/175732",
        lambda: Situation(RoiAlign(), (torch.zeros(1, 8, 10, 10), torch.zeros(30, 5))),
    ),
    Report(
        "MultiScaleRoIAlign of two levels",
        "https://github.com/pytorch/vision/issues/9462",
        lambda: Situation(
            RoiAlignOfLists(),
            (torch.rand(1, 4, 16, 16), torch.rand(1, 4, 8, 8), boxes_within(5, 60)),
            dynamic_shapes={"fine": None, "coarse": None, "boxes": {0: Dim("n")}},
            fresh=new_pyramid,
        ),
    ),
    Report(
        "batched_nms",
        "https://github.com/pytorch/pytorch/issues/141568",
        lambda: Situation(
            BatchedNms(),
            (boxes_within(20, 40), torch.rand(20), torch.randint(0, 2, (20,))),
            dynamic_shapes={"boxes": {0: Dim("n")}, "scores": {0: Dim("n")}, "labels": {0: Dim("n")}},
            fresh=new_boxes,
        ),
    ),
    Report(
        "YOLO with its NMS stage",
        "https://github.com/open-edge-platform/geti/issues/5073",
        lambda: Situation(YoloWithNms().eval(), (torch.randn(1, 3, 32, 32),)),
    ),
    Report(
        "D-FINE: chosen queries",
        "https://github.com/ArgoHA/D-FINE-seg/issues/40",
        lambda: Situation(ChoosesQueries().eval(), (torch.randn(2, 3, 16, 20),), dynamic_shapes={"image": {0: D}}),
    ),
    Report(
        "Faster R-CNN",
        "https://github.com/pytorch/vision/issues/9306",
        lambda: Situation(tiny_faster_rcnn(), ([torch.rand(3, 64, 80)],)),
    ),
)
