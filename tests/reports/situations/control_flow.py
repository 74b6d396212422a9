"""Branches and loops over values, and sizes that are known only at run time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from side_by_side import Situation
from torch import nn
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class EarlyExit(nn.Module):
    """The head is chosen by the mean of the input."""

    def __init__(self):
        super().__init__()
        self.trunk, self.early, self.late = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.trunk(x))
        return torch.cond(x.mean() > 0.4, lambda x: self.early(x), lambda x: self.late(x), (x,))


class TwoResults(nn.Module):
    """Both branches return two tensors."""

    def forward(self, x, y):
        def first(x, y):
            return x + y, (x * y).sum(-1)

        def second(x, y):
            return x - y, x.mean(-1)

        return torch.cond(x.sum() > 0, first, second, (x, y))


class CondOnSize(nn.Module):
    def forward(self, x):
        return torch.cond(x.shape[0] <= 4, torch.cos, torch.sin, (x,))


class CountsUp(nn.Module):
    """Doubles until a limit is reached."""

    def forward(self, x):
        def more(i, x):
            return (x.abs().sum() < 100) & (i < 20)

        return torch.while_loop(more, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


class CumulativeScan(nn.Module):
    """A linear recurrence over the rows of an input."""

    def forward(self, init, xs):
        def step(carry, x):
            carry = 0.5 * carry + x
            return carry, carry + 0.0

        return torch._higher_order_ops.scan(step, init, xs, dim=0)


class YoloDecoder(nn.Module):
    """Decodes the boxes of three strides on grids that are made from the sizes."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Conv2d(3, 3 * 6, 3, stride, 1) for stride in (2, 4, 8)])
        self.register_buffer("anchors", torch.rand(3, 3, 2) * 4 + 1)

    def forward(self, image):
        results = []
        feats = [head(image) for head in self.heads]
        for x, anchor, stride in zip(feats, self.anchors, (2, 4, 8), strict=True):
            batch, _, height, width = x.shape
            x = x.view(batch, 3, 6, height, width).permute(0, 1, 3, 4, 2)
            ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack([xs, ys], -1).float()
            xy = (torch.sigmoid(x[..., :2]) + grid) * stride
            wh = torch.exp(x[..., 2:4]) * anchor[None, :, None, None]
            results.append(torch.cat([xy, wh, torch.sigmoid(x[..., 4:])], -1).reshape(batch, -1, 6))
        return torch.cat(results, 1)


class PositiveRows(nn.Module):
    """Keeps the rows of points that are inside a range, as voxel networks do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, points):
        inside = (points[:, :2].abs() < 1.5).all(1)
        kept = points[inside]
        return F.relu(self.linear(kept)), torch.nonzero(inside)


class SliceByItem(nn.Module):
    """An image is cropped to a size that is an input."""

    def forward(self, x, img_size):
        size = img_size.item()
        torch._check(size >= 0)
        torch._check(size <= x.size(0))
        return x[:size] * 2


class BranchOnMask(nn.Module):
    """A fast path where the mask is causal, decided by its values."""

    def forward(self, scores, mask):
        causal = torch.ones_like(mask).tril()
        if bool((mask == causal).all()):
            return scores.tril()
        return scores * mask


class UniqueNodes(nn.Module):
    """Relabels the nodes of a sampled graph."""

    def forward(self, edges, features):
        nodes, inverse = torch.unique(edges, return_inverse=True)
        return features[nodes], inverse


IMAGES = {0: D, 2: D, 3: D}

REPORTS = (
    Report(
        "torch.cond with submodules",
        "https://github.com/pytorch/pytorch/issues/143192",
        lambda: Situation(EarlyExit(), (torch.randn(3, 6),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "torch.cond with two results",
        "https://github.com/pytorch/pytorch/issues/145734",
        lambda: Situation(
            TwoResults(),
            (torch.randn(3, 6), torch.randn(3, 6)),
            dynamic_shapes={"x": {0: Dim("n")}, "y": {0: Dim("n")}},
        ),
    ),
    Report(
        "torch.cond on a size",
        "https://github.com/pytorch/pytorch/issues/117655",
        lambda: Situation(CondOnSize(), (torch.randn(3, 2),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "torch.while_loop",
        "https://github.com/pytorch/pytorch/issues/146674",
        lambda: Situation(CountsUp(), (torch.randn(3, 2),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "scan",
        "https://github.com/pytorch/pytorch/issues/151327",
        lambda: Situation(
            CumulativeScan(), (torch.randn(3), torch.randn(5, 3)), dynamic_shapes={"init": None, "xs": {0: D}}
        ),
    ),
    Report(
        "YOLO: a loop over strides with grids of dynamic sizes",
        "https://github.com/pytorch/pytorch/issues/170180",
        lambda: Situation(YoloDecoder().eval(), (torch.randn(2, 3, 24, 32),), dynamic_shapes={"image": IMAGES}),
    ),
    Report(
        "rows chosen by a mask",
        "https://github.com/pytorch/pytorch/issues/153955",
        lambda: Situation(PositiveRows(), (torch.randn(12, 4),), dynamic_shapes={"points": {0: D}}),
    ),
    Report(
        "a slice whose end is an input",
        "https://github.com/pytorch/pytorch/issues/123592",
        lambda: Situation(SliceByItem(), (torch.randn(10, 3), torch.tensor(5))),
    ),
    Report(
        "a branch on the values of a mask",
        "https://github.com/pytorch/pytorch/issues/134616",
        lambda: Situation(BranchOnMask(), (torch.randn(5, 5), torch.ones(5, 5).tril())),
    ),
    Report(
        "unique",
        "https://github.com/pytorch/pytorch/issues/143222",
        lambda: Situation(
            UniqueNodes(),
            (torch.randint(0, 30, (2, 10)), torch.randn(30, 4)),
            dynamic_shapes={"edges": {1: D}, "features": None},
        ),
    ),
)
