"""Makes docs/pictures/vision.svg: what operators of opbridge.vision compute, drawn from their results.

python site/vision_pictures.py
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from opbridge import vision

FILE = Path(__file__).parents[1] / "docs" / "pictures" / "vision.svg"
SIDE, GAP, COLUMNS = 220, 24, 3
BLUE, GREY, ORANGE, GREEN, PURPLE = "#1f6feb", "#9aa4b2", "#e8590c", "#2b8a3e", "#8250df"


def polygon(points: Iterable[Sequence[float]], stroke: str, *, opacity: float = 1, dashed: bool = False) -> str:
    """A closed outline."""
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<polygon points="{listed}" fill="{stroke}" fill-opacity="{0.08 * opacity:.2f}" stroke="{stroke}" '
        f'stroke-opacity="{opacity:.2f}" stroke-width="1.5"{dashes}/>'
    )


def dot(x: float, y: float, colour: str, radius: float = 3) -> str:
    """A point."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}"/>'


def circle(x: float, y: float, radius: float, colour: str) -> str:
    """An outline around a point."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>'


def label(x: float, y: float, text: str, colour: str = "#24292f", size: int = 11) -> str:
    """A text around a point."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"'
    return f'<text {place} text-anchor="middle">{html.escape(text)}</text>'


def pixels(image: Tensor, x: float, y: float, side: float) -> str:
    """A feature map (height, width) as grey squares, black for its largest number."""
    low, high = float(image.min()), float(image.max())
    made = []
    for (row, column), value in zip(
        torch.cartesian_prod(*map(torch.arange, image.shape)).tolist(), image.flatten().tolist(), strict=True
    ):
        shade = round(245 - 215 * (value - low) / (high - low))
        place = f'x="{x + column * side:.1f}" y="{y + row * side:.1f}" width="{side:.1f}" height="{side:.1f}"'
        made.append(f'<rect {place} fill="rgb({shade},{shade},{shade})" stroke="#ffffff" stroke-width="0.5"/>')
    return "".join(made)


def corners(box: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of a rotated box."""
    x, y, width, height, angle = box
    cosine, sine = math.cos(angle), math.sin(angle)
    return [
        (x + i * width / 2 * cosine - j * height / 2 * sine, y + i * width / 2 * sine + j * height / 2 * cosine)
        for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1))
    ]


def rotated_boxes() -> tuple[Tensor, Tensor]:
    """Three heaps of boxes around objects, and their scores."""
    torch.manual_seed(3)
    objects = torch.tensor([[65.0, 65, 80, 34, 0.5], [150, 85, 64, 40, -0.7], [95, 160, 92, 36, 0.1]])
    boxes = objects.repeat_interleave(4, 0)
    return boxes + torch.randn(12, 5) * torch.tensor([5.0, 5, 6, 4, 0.12]), torch.rand(12)


def nms_rotated() -> str:
    """The kept boxes in colour."""
    boxes, scores = rotated_boxes()
    kept = vision.nms_rotated(boxes[None], scores[None, None], 0.3, 0.05)[:, 2].tolist()
    others = [polygon(corners(box), GREY, dashed=True) for i, box in enumerate(boxes.tolist()) if i not in kept]
    return "".join([*others, *(polygon(corners(boxes[i].tolist()), BLUE) for i in kept)])


def soft_nms() -> str:
    """The scores before and after."""
    torch.manual_seed(1)
    boxes = torch.tensor([[20.0, 30, 120, 120], [45, 50, 150, 140], [110, 105, 200, 200], [25, 150, 90, 205]])
    scores = torch.tensor([0.95, 0.8, 0.7, 0.6])
    rows, places = vision.soft_nms(boxes, scores, 0.3, 0.3, 0.01, "gaussian")
    made = []
    for (x1, y1, x2, y2, score), place in zip(rows.tolist(), places.tolist(), strict=True):
        made.append(polygon([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], BLUE, opacity=max(score, 0.15)))
        made.append(label((x1 + x2) / 2, y2 - 5, f"{float(scores[place]):.2f} → {score:.2f}"))
    return "".join(made)


def box_iou_rotated() -> str:
    """Pairs of boxes, and their overlaps."""
    first = torch.tensor(
        [[60.0, 60, 80, 40, 0.4], [155, 75, 60, 60, 0.0], [70, 160, 90, 30, 0.0], [165, 160, 60, 44, 0.3]]
    )
    second = torch.tensor(
        [[70.0, 65, 80, 40, 0.2], [155, 75, 60, 60, 0.785], [70, 160, 30, 90, 0.0], [165, 160, 60, 44, 0.3]]
    )
    overlaps = vision.box_iou_rotated(first, second, aligned=True).tolist()
    made = []
    for one, other, overlap in zip(first.tolist(), second.tolist(), overlaps, strict=True):
        made += [
            polygon(corners(one), BLUE),
            polygon(corners(other), ORANGE),
            label(one[0], one[1] + 4, f"{overlap:.2f}"),
        ]
    return "".join(made)


def roi_align_rotated() -> str:
    """An image with a box, and the box's bins beside it."""
    rows, columns = torch.meshgrid(torch.arange(20.0), torch.arange(20.0), indexing="ij")
    along = (columns - 9) * math.cos(0.6) + (rows - 7) * math.sin(0.6)
    across = (rows - 7) * math.cos(0.6) - (columns - 9) * math.sin(0.6)
    image = torch.exp(-((along / 6) ** 2) - (across / 2) ** 2) + 0.35 * torch.exp(
        -((along - 3) ** 2) - (across - 1) ** 2
    )
    box = [9.5, 7.5, 14.0, 7.0, 0.6]
    bins = vision.roi_align_rotated(image[None, None], torch.tensor([[0.0, *box]]), 7, 14, 1.0, 2, True, True)[0, 0]
    outline = [(10 + 7.5 * x, 5 + 7.5 * y) for x, y in corners(box)]
    return pixels(image, 10, 5, 7.5) + polygon(outline, ORANGE) + pixels(bins, 50, 162, 8)


def corner_pool() -> str:
    """A feature map, and the sum of its two poolings, whose largest pixel is a corner."""
    torch.manual_seed(2)
    image = 0.3 * torch.rand(9, 9)
    image[2, 6], image[7, 2] = 1.0, 0.9
    both = sum(vision.corner_pool(image[None, None], mode)[0, 0] for mode in ("top", "left"))
    return pixels(image, 4, 60, 11) + label(110, 114, "→", size=18) + pixels(both, 118, 60, 11)


def upfirdn2d() -> str:
    """An image, and the image twice as large."""
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    image = ((rows - 3.5).square() + (columns - 3.5).square() < 8).float()
    taps = torch.tensor([1.0, 3, 3, 1]) / 8
    larger = vision.upfirdn2d(image[None, None], taps, [2, 2], [1, 1], [2, 1, 2, 1], False, 4.0)[0, 0]
    return pixels(image, 4, 80, 8) + label(84, 116, "→", size=18) + pixels(larger, 102, 55, 7)


def neighbours() -> str:
    """The three nearest points of one query, and the ball of another."""
    torch.manual_seed(5)
    points, queries = 10 + 200 * torch.rand(60, 2), torch.tensor([[65.0, 70], [145, 140]])
    _, nearest = vision.knn(queries[None, :1], points[None], 3)
    around = vision.ball_query(queries[None, 1:], points[None], 0.0, 50.0, 20)
    made = [dot(x, y, GREY) for x, y in points.tolist()]
    x, y = queries[0].tolist()
    for i in nearest.flatten().tolist():
        to_x, to_y = points[i].tolist()
        made += [f'<line x1="{x}" y1="{y}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{BLUE}"/>', dot(to_x, to_y, BLUE)]
    made += [dot(*points[i].tolist(), ORANGE) for i in set(around.flatten().tolist())]
    made += [circle(*queries[1].tolist(), 50, ORANGE), dot(x, y, "#24292f", 4), dot(*queries[1].tolist(), "#24292f", 4)]
    return "".join(made)


def furthest_point_sample() -> str:
    """The chosen points, by number."""
    torch.manual_seed(6)
    points = 110 + 38 * torch.randn(120, 2)
    points = points[((points > 8) & (points < 212)).all(1)]
    chosen = vision.furthest_point_sample(points[None], 12)[0].tolist()
    numbers = [label(x, y - 6, str(k), BLUE) for k, (x, y) in enumerate(points[chosen].tolist(), 1)]
    return "".join(
        [
            *(dot(x, y, GREY, 2) for x, y in points.tolist()),
            *(dot(*points[i].tolist(), BLUE, 4) for i in chosen),
            *numbers,
        ]
    )


def voxels_and_boxes() -> str:
    """Voxels by their number of points; points by the box that contains them."""
    torch.manual_seed(7)
    objects = torch.tensor([[70.0, 80, 0, 90, 44, 2, 0.4], [150, 150, 0, 76, 40, 2, -0.6]])
    inside = [
        o[:2]
        + (torch.randn(40, 2) * o[3:5] / 3.5)
        @ torch.tensor([[math.cos(o[6]), math.sin(o[6])], [-math.sin(o[6]), math.cos(o[6])]])
        for o in objects
    ]
    flat = torch.cat([*inside, 220 * torch.rand(40, 2)])
    points = torch.cat([flat, torch.ones(len(flat), 1)], 1)
    _, places, sizes = vision.hard_voxelize(points, [22.0, 22.0, 4.0], [0.0, 0.0, -1.0, 220.0, 220.0, 3.0], 12, 200)
    made = []
    for (_, row, column), size in zip(places.tolist(), sizes.tolist(), strict=True):
        place = f'x="{column * 22}" y="{row * 22}" width="21" height="21"'
        made.append(f'<rect {place} fill="{PURPLE}" fill-opacity="{0.06 + size / 30:.2f}"/>')
    boxes = vision.points_in_boxes_part(points[None], objects[None])[0].tolist()
    made += [dot(x, y, (BLUE, GREEN, GREY)[box], 2.5) for (x, y, _), box in zip(points.tolist(), boxes, strict=True)]
    made += [polygon(corners([*o[:2], *o[3:5], o[6]]), (BLUE, GREEN)[i]) for i, o in enumerate(objects.tolist())]
    return "".join(made)


PANELS: dict[str, Callable[[], str]] = {
    "nms_rotated": nms_rotated,
    "soft_nms": soft_nms,
    "box_iou_rotated": box_iou_rotated,
    "roi_align_rotated": roi_align_rotated,
    "corner_pool, top + left": corner_pool,
    "upfirdn2d": upfirdn2d,
    "knn and ball_query": neighbours,
    "furthest_point_sample": furthest_point_sample,
    "hard_voxelize, points_in_boxes_part": voxels_and_boxes,
}


def picture() -> str:
    """All panels, as SVG."""
    rows = math.ceil(len(PANELS) / COLUMNS)
    width, height = COLUMNS * (SIDE + GAP) + GAP, rows * (SIDE + 2 * GAP) + GAP
    made = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for k, (name, draw) in enumerate(PANELS.items()):
        x, y = GAP + k % COLUMNS * (SIDE + GAP), 2 * GAP + k // COLUMNS * (SIDE + 2 * GAP)
        frame = f'<rect width="{SIDE}" height="{SIDE}" fill="#f6f8fa" rx="6"/>'
        made.append(f'<g transform="translate({x},{y})">{label(SIDE / 2, -8, name, size=13)}{frame}{draw()}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif">\n' + "\n".join(made) + "\n</svg>\n"
    )


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
