"""Loops in which a tensor loses elements: the non-maximum suppression of detectors, and rows that are done."""

import torch
from program import program
from torch import nn

DYNAMIC = torch.export.Dim.DYNAMIC
ROWS = {"boxes": {0: DYNAMIC}, "scores": {0: DYNAMIC}}


def _detections(n):
    generator = torch.Generator().manual_seed(n)
    corner = torch.rand(n, 2, generator=generator) * 20
    size = torch.rand(n, 2, generator=generator) * 15 + 3
    return torch.cat([corner, corner + size], 1), torch.rand(n, generator=generator)


CASES = [_detections(n) for n in (9, 1, 2, 30)]


def _overlaps(box, boxes):
    area, areas = (box[2:] - box[:2]).prod(), (boxes[:, 2:] - boxes[:, :2]).prod(1)
    sides = torch.minimum(box[2:], boxes[:, 2:]) - torch.maximum(box[:2], boxes[:, :2])
    common = sides.clamp(min=0).prod(1)
    return common / (area + areas - common)


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def suppression_in_a_list(boxes, scores):
    order, kept = scores.argsort(descending=True), []
    while order.numel() > 0:
        first = order[0]
        kept.append(first)
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[_overlaps(boxes[first], boxes[rest]) <= 0.5]
    return torch.stack(kept)


@program("Loop", "If", cases=CASES, dynamic=ROWS)
def suppression_in_a_tensor(boxes, scores):
    kept, count = torch.zeros(scores.size(0), dtype=torch.int64), 0
    order = scores.argsort()[-20:]
    while order.numel() > 0:
        last = order[-1]
        kept[count] = last
        count += 1
        if order.size(0) == 1:
            break
        order = order[:-1]
        overlaps = _overlaps(boxes[last], boxes[order])
        order = order[overlaps.le(0.5)]
    return kept[:count]


@program("Loop", cases=CASES, dynamic=ROWS)
def suppression_of_boxes_and_scores(boxes, scores):
    scores, order = scores.sort(descending=True)
    boxes, best, certain = boxes[order], [], []
    while boxes.shape[0]:
        best.append(boxes[0])
        certain.append(scores[0])
        kept = _overlaps(boxes[0], boxes) < 0.5
        boxes, scores = boxes[kept], scores[kept]
    return torch.stack(best), torch.stack(certain)


@program("Loop", cases=CASES, dynamic=ROWS)
def merged_boxes(boxes, scores):
    found = torch.cat([boxes, scores[:, None]], 1)[scores.argsort(descending=True)]
    merged = []
    while found.size(0):
        same = _overlaps(found[0, :4], found[:, :4]) > 0.5
        weights = found[same, 4:]
        merged += [(weights * found[same, :4]).sum(0) / weights.sum()]
        found = found[~same]
    return torch.stack(merged)


@program("Loop", cases=[(torch.randn(n, 3), n) for n in (5, 1, 8)], dynamic=({0: DYNAMIC}, None))
def rows_that_are_done(x, n):
    total = torch.zeros(3)
    for _ in range(n):
        x = x * 1.5
        total = total + x.sum(0)
        x = x[x.abs().amax(1) < 3]
    return total, x


@program("Loop", cases=[(torch.rand(n, 4),) for n in (5, 1, 8)], dynamic=({0: DYNAMIC},))
class ColumnsAndTheirNames(nn.Module):
    def forward(self, x):
        x, names = x.T, torch.arange(x.shape[0])
        others = torch.ones(x.shape[1])
        last = names[:1]
        while x.sum() > 1:
            last = names[x.sum(0).argmax()].reshape(1)
            kept = names != last
            x, names = x[:, kept] * 0.9, names[kept]
            others = others[: others.shape[0] - 1]
        return x, names, last, others.sum()
