"""Non-maximum suppression of rotated boxes: no ONNX operator, and how many boxes are kept is known only at the end.

The Python function is right but slow: it needs the overlap of every pair of boxes, and a loop over them. It stays the
reference, and the ONNX function body for programs that have no library of kernels; the C++ kernel beside this file
runs in ONNX Runtime and in PyTorch.

    opbridge export examples/rotated_nms.py:model -o build/rotated_nms
"""

import math

import torch
from torch import Tensor

import opbridge


def fraction(start: Tensor, stop: Tensor, at: Tensor) -> Tensor:
    """How far along from ``start`` to ``stop`` the number ``at`` lies, between 0 and 1; 0 where the two are equal."""
    length = stop - start
    return ((at - start) / torch.where(length == 0, 1, length)).clamp(0, 1) * (length != 0)


def shared_areas(boxes: Tensor) -> Tensor:
    """The area that box i and box j share, at [j, i].

    In the frame of box i, in which it is upright, the shared area is the integral of y dx around box j, with x and y
    clamped to box i. Clamped, an edge bends at most twice, where it crosses the top and the bottom: no intersections to
    sort, and no special case for boxes that coincide.
    """
    x, y, angle = boxes[:, 0], boxes[:, 1], boxes[:, 4]
    width, height = (boxes[:, 2:4].clamp(min=0) / 2).unbind(1)
    cosine, sine = angle.cos(), angle.sin()

    # The corners of j (axis 0) in the frame of i (axis 1), around the box (axis 2).
    dx, dy = x[:, None] - x, y[:, None] - y
    turned_x, turned_y = dx * cosine + dy * sine, dy * cosine - dx * sine
    turn_cosine = cosine[:, None] * cosine + sine[:, None] * sine
    turn_sine = sine[:, None] * cosine - cosine[:, None] * sine
    along_x, along_y = width[:, None] * turn_cosine, width[:, None] * turn_sine
    across_x, across_y = -height[:, None] * turn_sine, height[:, None] * turn_cosine
    x0 = turned_x[..., None] + torch.stack(
        [along_x + across_x, across_x - along_x, -along_x - across_x, along_x - across_x], -1
    )
    y0 = turned_y[..., None] + torch.stack(
        [along_y + across_y, across_y - along_y, -along_y - across_y, along_y - across_y], -1
    )
    x1, y1 = torch.roll(x0, -1, 2), torch.roll(y0, -1, 2)

    right, top = width[:, None], height[:, None]
    begin_x, end_x = x0.clamp(-right, right), x1.clamp(-right, right)
    begin = y0 + fraction(x0, x1, begin_x) * (y1 - y0)
    end = y0 + fraction(x0, x1, end_x) * (y1 - y0)
    bends = fraction(begin, end, -top), fraction(begin, end, top)
    zero = torch.zeros_like(begin)
    ats = [zero, torch.minimum(*bends), torch.maximum(*bends), zero + 1]
    heights = [(begin + at * (end - begin)).clamp(-top, top) for at in ats]
    mean = sum((ats[k + 1] - ats[k]) * (heights[k] + heights[k + 1]) for k in range(3)) / 2
    return ((begin_x - end_x) * mean).sum(2)


@opbridge.operator("mylib::rotated_nms")
def rotated_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Indices of the boxes kept, best score first.

    Args:
        boxes: (n, 5): centre x and y, width, height, angle in radians.
        scores: (n,)
        threshold: A box goes if it overlaps a better one that is kept by more than this; the overlap is the area that
            they share over the area that they cover.
    """
    order = torch.sort(scores, descending=True, stable=True).indices
    ordered = boxes[order]
    areas = ordered[:, 2:4].clamp(min=0).prod(1)
    shared = shared_areas(ordered)
    overlapping = shared > threshold * (areas[:, None] + areas - shared)
    count = order.shape[0]
    places = torch.arange(count)
    worse = overlapping & (places[:, None] > places)

    def go_on(place: Tensor, kept: Tensor) -> Tensor:
        return place < count

    def suppress(place: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        column = worse.index_select(1, place[None]).squeeze(1)
        return place + 1, kept & ~(column & kept.index_select(0, place[None]))

    start = torch.zeros((), dtype=torch.int64)
    _, kept = torch.while_loop(go_on, suppress, (start, torch.ones_like(order, dtype=torch.bool)))
    return order[kept]


rotated_nms.kernel("rotated_nms.h")


class Detector(torch.nn.Module):
    """Turns what a network's head says of each candidate into boxes, and keeps the best."""

    def forward(self, head, scores):
        centre = 100 * head[:, :2].sigmoid()
        size = 20 * head[:, 2:4].clamp(-2, 2).exp()
        angle = math.pi / 2 * head[:, 4:].tanh()
        boxes = torch.cat([centre, size, angle], 1)
        kept = rotated_nms(boxes, scores, 0.3)
        return boxes[kept], scores[kept]


def model():
    torch.manual_seed(0)
    candidates = torch.export.Dim("candidates", min=2)
    return {
        "model": Detector().eval(),
        "args": (torch.randn(60, 5), torch.rand(60)),
        "dynamic_shapes": {"head": {0: candidates}, "scores": {0: candidates}},
        "input_names": ["head", "scores"],
        "output_names": ["boxes", "best_scores"],
    }
