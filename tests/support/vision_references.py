"""Direct loops in float64 for the operators and nodes of opbridge.vision, written from papers and documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def pixel(plane: np.ndarray, row: int, column: int) -> float:
    """A pixel, and zero outside."""
    inside = 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]
    return float(plane[row, column]) if inside else 0.0


def bilinear(plane: np.ndarray, y: float, x: float) -> float:
    """The image between its pixels, zero around it."""
    top, left = math.floor(y), math.floor(x)
    down, right = y - top, x - left
    return sum(
        pixel(plane, top + i, left + j) * (down if i else 1 - down) * (right if j else 1 - right)
        for i in (0, 1)
        for j in (0, 1)
    )


def box_sample(plane: np.ndarray, y: float, x: float) -> float:
    """A sample of RoI align: the border goes on for one pixel."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    return bilinear(plane, min(max(y, 0), height - 1), min(max(x, 0), width - 1))


def grid_sample(image: np.ndarray, grid: np.ndarray, align_corners: bool) -> np.ndarray:
    """Bilinear, zeros outside."""
    batch, channels, height, width = image.shape
    result = np.zeros((batch, channels, *grid.shape[1:3]))
    for n, c, i, j in np.ndindex(*result.shape):
        x, y = (float(number) for number in grid[n, i, j])
        if align_corners:
            y, x = (y + 1) / 2 * (height - 1), (x + 1) / 2 * (width - 1)
        else:
            y, x = ((y + 1) * height - 1) / 2, ((x + 1) * width - 1) / 2
        result[n, c, i, j] = bilinear(image[n, c], y, x)
    return result


def deform_conv(
    image: np.ndarray,
    offset: np.ndarray,
    mask: np.ndarray | None,
    weight: np.ndarray,
    bias: np.ndarray | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    offset_groups: int,
) -> np.ndarray:
    """arXiv:1811.11168."""
    filters, per_group, taps_h, taps_w = weight.shape
    batch, channels = image.shape[:2]
    result = np.zeros((batch, filters, *offset.shape[2:]))
    for n, f, i, j in np.ndindex(*result.shape):
        total = 0.0 if bias is None else float(bias[f])
        for c, p, q in np.ndindex(per_group, taps_h, taps_w):
            channel = f // (filters // groups) * per_group + c
            tap = channel // (channels // offset_groups) * taps_h * taps_w + p * taps_w + q
            y = i * stride[0] - padding[0] + p * dilation[0] + float(offset[n, 2 * tap, i, j])
            x = j * stride[1] - padding[1] + q * dilation[1] + float(offset[n, 2 * tap + 1, i, j])
            factor = 1.0 if mask is None else float(mask[n, tap, i, j])
            total += float(weight[f, c, p, q]) * factor * bilinear(image[n, channel], y, x)
        result[n, f, i, j] = total
    return result


def roi_align(
    image: np.ndarray, rois: np.ndarray, size: tuple[int, int], scale: float, ratio: int, aligned: bool
) -> np.ndarray:
    """Boxes as (image, x1, y1, x2, y2); arXiv:1703.06870."""
    rotated = np.stack(
        [
            rois[:, 0],
            (rois[:, 1] + rois[:, 3]) / 2,
            (rois[:, 2] + rois[:, 4]) / 2,
            rois[:, 3] - rois[:, 1],
            rois[:, 4] - rois[:, 2],
            0 * rois[:, 0],
        ],
        1,
    )
    if not aligned:
        # A box that is too small grows from its first corner, not from its centre.
        least = np.maximum(rotated[:, 3:5], 1 / scale)
        rotated[:, 1:3] = rois[:, 1:3] + least / 2
        rotated[:, 3:5] = least
    return roi_align_rotated(image, rotated, size, scale, ratio, aligned, False)


def roi_align_rotated(
    image: np.ndarray,
    rois: np.ndarray,
    size: tuple[int, int],
    scale: float,
    ratio: int,
    aligned: bool,
    clockwise: bool,
) -> np.ndarray:
    """Boxes as (image, centre x, centre y, width, height, angle)."""
    result = np.zeros((len(rois), image.shape[1], *size))
    for r, roi in enumerate(rois.astype(np.float64)):
        shift = 0.5 if aligned else 0.0
        centre_x, centre_y = roi[1] * scale - shift, roi[2] * scale - shift
        width, height = (max(side * scale, -math.inf if aligned else 1.0) for side in roi[3:5])
        angle = -roi[5] if clockwise else roi[5]
        bins = height / size[0], width / size[1]
        grid = (ratio, ratio) if ratio > 0 else (math.ceil(bins[0]), math.ceil(bins[1]))
        for c, i, j in np.ndindex(image.shape[1], *size):
            total = 0.0
            for p, q in np.ndindex(*grid):
                along_y = (i + (p + 0.5) / grid[0]) * bins[0] - height / 2
                along_x = (j + (q + 0.5) / grid[1]) * bins[1] - width / 2
                y = along_y * math.cos(angle) - along_x * math.sin(angle) + centre_y
                x = along_y * math.sin(angle) + along_x * math.cos(angle) + centre_x
                total += box_sample(image[int(roi[0]), c], y, x)
            result[r, c, i, j] = total / max(grid[0] * grid[1], 1)
    return result


def by_level(
    rois: np.ndarray, maps: list[np.ndarray], strides: list[float], finest: int, align: Callable[..., np.ndarray]
) -> np.ndarray:
    """Each box from the level of its size (arXiv:1612.03144); ``align(image, roi, scale)`` samples it."""
    rows = []
    for roi in rois.astype(np.float64):
        sides = (roi[3], roi[4]) if len(roi) == 6 else (roi[3] - roi[1], roi[4] - roi[2])
        level = math.floor(math.log2(math.sqrt(sides[0] * sides[1]) / finest + 1e-6))
        level = min(max(level, 0), len(maps) - 1)
        rows.append(align(maps[level], roi[None], 1 / strides[level]))
    return np.concatenate(rows)


def corners_of(box: np.ndarray) -> list[tuple[float, float]]:
    """The corners of a rotated box, in order."""
    x, y, width, height, angle = (float(number) for number in box)
    cosine, sine = math.cos(angle), math.sin(angle)
    return [
        (x + i * width / 2 * cosine - j * height / 2 * sine, y + i * width / 2 * sine + j * height / 2 * cosine)
        for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1))
    ]


def area_of(points: list[tuple[float, float]]) -> float:
    """The shoelace formula."""
    pairs = zip(points, points[1:] + points[:1], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)) / 2


def clipped(points: list[tuple[float, float]], window: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The part of a convex polygon inside another one, whose corners are counterclockwise (Sutherland and Hodgman)."""
    for (ax, ay), (bx, by) in zip(window, window[1:] + window[:1], strict=True):

        def side(point: tuple[float, float], ax: float = ax, ay: float = ay, bx: float = bx, by: float = by) -> float:
            return (bx - ax) * (point[1] - ay) - (by - ay) * (point[0] - ax)

        left = []
        for start, stop in zip(points, points[1:] + points[:1], strict=True):
            begin, end = side(start), side(stop)
            if begin >= 0:
                left.append(start)
            if (begin > 0 > end) or (begin < 0 < end):
                at = begin / (begin - end)
                left.append((start[0] + at * (stop[0] - start[0]), start[1] + at * (stop[1] - start[1])))
        points = left
        if not points:
            break
    return points


def iou(first: np.ndarray, second: np.ndarray) -> float:
    """Intersection over union of two boxes: corners, or rotated boxes of five numbers."""
    if len(first) == 5:
        shared = area_of(clipped(corners_of(first), corners_of(second)) or [(0.0, 0.0)])
        areas = [float(box[2]) * float(box[3]) for box in (first, second)]
    else:
        one, other = first.astype(np.float64), second.astype(np.float64)
        sides = [max(min(one[k + 2], other[k + 2]) - max(one[k], other[k]), 0.0) for k in (0, 1)]
        shared = sides[0] * sides[1]
        areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(shared / (sum(areas) - shared)) if shared else 0.0


def overlaps(
    first: np.ndarray, second: np.ndarray, mode: str, aligned: bool, polygon: Callable[..., list[tuple[float, float]]]
) -> np.ndarray:
    """The overlaps of all pairs of boxes, or of box i and box i; ``polygon`` gives the corners of a box."""

    def of(box: np.ndarray, other: np.ndarray) -> float:
        one, two = (counterclockwise(polygon(numbers)) for numbers in (box, other))
        shared = area_of(clipped(one, two) or [(0.0, 0.0)])
        return shared / (area_of(one) if mode == "iof" else area_of(one) + area_of(two) - shared)

    if aligned:
        return np.array([of(box, other) for box, other in zip(first, second, strict=True)])
    return np.array([[of(box, other) for other in second] for box in first])


def counterclockwise(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of a polygon in the order in which the area of the shoelace formula is positive."""
    pairs = zip(points, points[1:] + points[:1], strict=True)
    return points if sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs) > 0 else points[::-1]


def box_iou_rotated(
    first: np.ndarray, second: np.ndarray, mode: str = "iou", aligned: bool = False, clockwise: bool = True
) -> np.ndarray:
    """Rotated boxes; the angles of the other sense are negated."""

    def polygon(box: np.ndarray) -> list[tuple[float, float]]:
        return corners_of(box if clockwise else np.array([*box[:4], -box[4]]))

    return overlaps(first, second, mode, aligned, polygon)


def box_iou_quadri(first: np.ndarray, second: np.ndarray, mode: str = "iou", aligned: bool = False) -> np.ndarray:
    """Four corners, in any sense."""
    return overlaps(first, second, mode, aligned, lambda box: [(float(x), float(y)) for x, y in box.reshape(4, 2)])


def soft_nms(
    boxes: np.ndarray,
    scores: np.ndarray,
    threshold: float = 0.3,
    sigma: float = 0.5,
    least: float = 1e-3,
    method: str = "linear",
    offset: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """arXiv:1704.04503, figure 3."""
    left = {i: float(score) for i, score in enumerate(scores)}
    wide = boxes.astype(np.float64) + np.array([0, 0, offset, offset])
    kept: list[tuple[int, float]] = []
    while left:
        best = max(left, key=lambda i: (left[i], -i))
        kept.append((best, left.pop(best)))
        for i in left:
            shared = iou(wide[best], wide[i])
            if method == "gaussian":
                left[i] *= math.exp(-(shared**2) / sigma)
            elif shared >= threshold:
                left[i] *= 1 - shared if method == "linear" else 0.0
    kept = [(i, score) for i, score in kept if score >= least]
    rows = np.array([[*boxes[i], score] for i, score in kept]).reshape(-1, 5)
    return rows, np.array([i for i, _ in kept], np.int64)


def suppressed(boxes: np.ndarray, scores: np.ndarray, overlap: float, least: float, most: int = -1) -> list[int]:
    """The boxes of one class that are kept, the best first."""
    order = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] > least]
    kept: list[int] = []
    for i in order[: most if most > 0 else None]:
        if all(iou(boxes[k], boxes[i]) <= overlap for k in kept):
            kept.append(i)
    return kept


def nms(boxes: np.ndarray, scores: np.ndarray, overlap: float, least: float) -> np.ndarray:
    """Rows of (image, class, box)."""
    rows = [
        (n, c, i) for n, c in np.ndindex(*scores.shape[:2]) for i in suppressed(boxes[n], scores[n, c], overlap, least)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def batched_nms(
    boxes: np.ndarray, scores: np.ndarray, overlap: float, least: float, topk: int, keep: int, background: int = -1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Boxes, scores, labels, indices: (images, keep, ...) for boxes (images, boxes, 1 or classes, 4 or 5)."""
    images, count, shared, size = boxes.shape
    result = np.zeros((images, keep, size)), np.zeros((images, keep)), *(np.full((images, keep), -1) for _ in range(2))
    for n in range(images):
        found = [
            (-float(scores[n, i, c]), c, rank, i)
            for c in range(scores.shape[2])
            if c != background
            for rank, i in enumerate(suppressed(boxes[n, :, c % shared], scores[n, :, c], overlap, least, topk))
        ]
        for row, (score, c, _, i) in enumerate(sorted(found)[:keep]):
            result[0][n, row], result[1][n, row] = boxes[n, i, c % shared], -score
            result[2][n, row], result[3][n, row] = c, i if shared == 1 else c * count + i
    return result


def nms_match(boxes: np.ndarray, scores: np.ndarray, overlap: float, least: float) -> np.ndarray:
    """Rows of (image, class, kept box, suppressed box)."""
    rows = []
    for n, c in np.ndindex(*scores.shape[:2]):
        left = [int(i) for i in np.argsort(-scores[n, c], kind="stable")]
        while left:
            best, *others = left
            dropped = [i for i in others if iou(boxes[n, best], boxes[n, i]) >= overlap]
            if scores[n, c, best] > least:
                rows += [(n, c, best, i) for i in dropped]
            left = [i for i in others if i not in dropped]
    return np.array(rows, np.int64).reshape(-1, 4)


def carafe(features: np.ndarray, masks: np.ndarray, kernel: int, groups: int, factor: int) -> np.ndarray:
    """arXiv:1905.02188."""
    batch, channels, height, width = features.shape
    result = np.zeros((batch, channels, height * factor, width * factor))
    for n, c, i, j in np.ndindex(*result.shape):
        group = c // (channels // groups)
        result[n, c, i, j] = sum(
            pixel(features[n, c], i // factor + p - kernel // 2, j // factor + q - kernel // 2)
            * float(masks[n, group * kernel**2 + p * kernel + q, i, j])
            for p, q in np.ndindex(kernel, kernel)
        )
    return result


def ms_deform_attn(
    value: np.ndarray, shapes: np.ndarray, starts: np.ndarray, locations: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """arXiv:2010.04159, equation 3."""
    batch, _, heads, channels = value.shape
    queries, levels, points = locations.shape[1], *locations.shape[3:5]
    result = np.zeros((batch, queries, heads, channels))
    for n, q, m, level, p in np.ndindex(batch, queries, heads, levels, points):
        height, width = (int(side) for side in shapes[level])
        begin = int(starts[level])
        image = value[n, begin : begin + height * width, m].reshape(height, width, channels)
        x, y = (float(number) for number in locations[n, q, m, level, p])
        for c in range(channels):
            sample = bilinear(image[..., c], y * height - 0.5, x * width - 0.5)
            result[n, q, m, c] += float(weights[n, q, m, level, p]) * sample
    return result.reshape(batch, queries, -1)


def border_align(image: np.ndarray, boxes: np.ndarray, steps: int) -> np.ndarray:
    """arXiv:2007.11056, equation 2: the sides are top, left, bottom, right."""
    channels = image.shape[1] // 4
    result = np.zeros((len(image), channels, boxes.shape[1], 4))
    for n, c, k in np.ndindex(*result.shape[:3]):
        x1, y1, x2, y2 = (float(number) for number in boxes[n, k])
        ends = [(x1, y1, x2, y1), (x1, y1, x1, y2), (x2, y2, x1, y2), (x2, y2, x2, y1)]
        for side, (x, y, to_x, to_y) in enumerate(ends):
            shares = [at / steps for at in range(steps + 1)]
            points = [(y + share * (to_y - y), x + share * (to_x - x)) for share in shares]
            result[n, c, k, side] = max(box_sample(image[n, side * channels + c], *point) for point in points)
    return result


def corner_pool(image: np.ndarray, mode: str) -> np.ndarray:
    """arXiv:1808.01244, section 3.3; the sides of a box that starts at a pixel are below it and on its right."""
    result = np.zeros(image.shape)
    for n, c, i, j in np.ndindex(*image.shape):
        plane = image[n, c]
        seen = {"top": plane[i:, j], "bottom": plane[: i + 1, j], "left": plane[i, j:], "right": plane[i, : j + 1]}
        result[n, c, i, j] = seen[mode].max()
    return result


def upfirdn2d(
    image: np.ndarray,
    taps: np.ndarray,
    up: list[int],
    down: list[int],
    padding: list[int],
    is_flipped: bool,
    gain: float,
) -> np.ndarray:
    """The sum over the taps, of which only those at a pixel and not at a zero between two count."""
    taps = np.outer(taps, taps) if taps.ndim == 1 else taps
    rows, columns = taps.shape
    height = (image.shape[2] * up[1] + padding[2] + padding[3] - rows) // down[1] + 1
    width = (image.shape[3] * up[0] + padding[0] + padding[1] - columns) // down[0] + 1
    # A padding that crops removes whole pixels and zeros, on both sides.
    spread = np.zeros((*image.shape[:2], image.shape[2] * up[1], image.shape[3] * up[0]))
    spread[:, :, :: up[1], :: up[0]] = image
    result = np.zeros((*image.shape[:2], height, width))
    for n, c, i, j in np.ndindex(*result.shape):
        for p, q in np.ndindex(rows, columns):
            tap = taps[p, q] if is_flipped else taps[rows - 1 - p, columns - 1 - q]
            row, column = i * down[1] + p - padding[2], j * down[0] + q - padding[0]
            in_crop = row < spread.shape[2] + min(padding[3], 0) and column < spread.shape[3] + min(padding[1], 0)
            result[n, c, i, j] += gain * float(tap) * pixel(spread[n, c], row, column) * in_crop
    return result


def bias_act(
    x: np.ndarray,
    bias: np.ndarray | None,
    axis: int,
    act: str,
    alpha: float = 0.2,
    gain: float | None = None,
    limit: float | None = None,
) -> np.ndarray:
    """arXiv:1912.04958; the constants of selu are those of arXiv:1706.02515."""
    functions: dict[str, Callable[[float], float]] = {
        "linear": lambda v: v,
        "relu": lambda v: max(v, 0.0),
        "lrelu": lambda v: v if v > 0 else alpha * v,
        "tanh": math.tanh,
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
        "elu": lambda v: v if v > 0 else math.expm1(v),
        "selu": lambda v: 1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v)),
        "softplus": lambda v: math.log1p(math.exp(v)),
        "swish": lambda v: v / (1 + math.exp(-v)),
    }
    factor = (2**0.5 if act in ("relu", "lrelu", "swish") else 1.0) if gain is None else gain
    result = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        value = factor * functions[act](float(x[place]) + (0.0 if bias is None else float(bias[place[axis]])))
        result[place] = value if limit is None else min(max(value, -limit), limit)
    return result


def knn(queries: np.ndarray, points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All distances, sorted."""
    rows = [
        [sorted((math.dist(q, p), i) for i, p in enumerate(cloud))[:k] for q in qs]
        for qs, cloud in zip(queries, points, strict=True)
    ]
    found = np.array(rows)
    return found[..., 0], found[..., 1].astype(np.int64)


def ball_query(queries: np.ndarray, points: np.ndarray, low: float, high: float, most: int) -> np.ndarray:
    """arXiv:1706.02413, section 3.2."""
    result = np.zeros((*queries.shape[:2], most), np.int64)
    for n, m in np.ndindex(*queries.shape[:2]):
        distances = [math.dist(queries[n, m], point) for point in points[n]]
        near = [i for i, distance in enumerate(distances) if distance == 0 or low <= distance < high][:most]
        result[n, m] = near + [near[0] if near else 0] * (most - len(near))
    return result


def group_points(features: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Each point's features."""
    result = np.zeros((*features.shape[:2], *positions.shape[1:]))
    for n, *place in np.ndindex(*positions.shape):
        result[(n, slice(None), *place)] = features[n, :, positions[(n, *place)]]
    return result


def three_interpolate(features: np.ndarray, positions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """arXiv:1706.02413, equation 2, with weights whose sum is 1."""
    result = np.zeros((*features.shape[:2], positions.shape[1]))
    for n, m, k in np.ndindex(*positions.shape):
        result[n, :, m] += features[n, :, positions[n, m, k]] * float(weights[n, m, k])
    return result


def furthest_point_sample(points: np.ndarray, count: int) -> np.ndarray:
    """arXiv:1706.02413, section 3.2."""
    rows = []
    for cloud in points:
        chosen = [0]
        while len(chosen) < count:
            distances = [min(math.dist(point, cloud[i]) for i in chosen) for point in cloud]
            chosen.append(int(np.argmax(distances)))
        rows.append(chosen[:count])
    return np.array(rows, np.int64)


def voxel_of(point: np.ndarray, size: list[float], limits: list[float]) -> tuple[int, ...] | None:
    """The voxel of a point as z, y, x; None outside."""
    cell = [math.floor((float(point[k]) - limits[k]) / size[k]) for k in range(3)]
    inside = all(0 <= cell[k] < round((limits[3 + k] - limits[k]) / size[k]) for k in range(3))
    return tuple(cell[::-1]) if inside else None


def dynamic_voxelize(points: np.ndarray, size: list[float], limits: list[float]) -> np.ndarray:
    """arXiv:1910.06528, section 3.1."""
    return np.array([voxel_of(point, size, limits) or (-1, -1, -1) for point in points], np.int64)


def hard_voxelize(
    points: np.ndarray, size: list[float], limits: list[float], most: int, most_voxels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """arXiv:1711.06396, section 2.1.1."""
    rows: dict[tuple[int, ...], list[np.ndarray]] = {}
    for point in points:
        voxel = voxel_of(point, size, limits)
        if voxel is not None and (voxel in rows or len(rows) < most_voxels):
            rows.setdefault(voxel, []).append(point)
    voxels = np.zeros((len(rows), most, points.shape[1]))
    for i, found in enumerate(rows.values()):
        voxels[i, : len(found[:most])] = found[:most]
    return voxels, np.array(list(rows), np.int64), np.array([min(len(found), most) for found in rows.values()])


def dynamic_scatter(features: np.ndarray, places: np.ndarray, reduce: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each voxel, reduced by NumPy."""
    rows: dict[tuple[int, ...], list[np.ndarray]] = {}
    for feature, place in zip(features, places, strict=True):
        if min(place) >= 0:
            rows.setdefault(tuple(int(number) for number in place), []).append(feature)
    reduced = [getattr(np, reduce)(np.stack(rows[voxel]), axis=0) for voxel in sorted(rows)]
    return np.stack(reduced), np.array(sorted(rows), np.int64)


def points_in_boxes_all(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Each point in the frame of each box; the box's z is that of its bottom."""
    result = np.zeros((*points.shape[:2], boxes.shape[1]), bool)
    for n, m, t in np.ndindex(*result.shape):
        x, y, z, *sizes, angle = (float(number) for number in boxes[n, t])
        # Complex numbers turn a point by the negative angle.
        turned = complex(points[n, m, 0] - x, points[n, m, 1] - y) * complex(math.cos(angle), -math.sin(angle))
        is_level = z <= points[n, m, 2] <= z + sizes[2]
        result[n, m, t] = is_level and abs(turned.real) < sizes[0] / 2 and abs(turned.imag) < sizes[1] / 2
    return result


def points_in_boxes_part(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The first box of each point."""
    inside = points_in_boxes_all(points, boxes)
    return np.where(inside.any(2), inside.argmax(2), -1)


def boxes_iou3d(first: np.ndarray, second: np.ndarray, mode: str = "iou", aligned: bool = False) -> np.ndarray:
    """Prisms whose bases are rotated boxes."""

    def of(one: np.ndarray, other: np.ndarray) -> float:
        bases = [corners_of(box[[0, 1, 3, 4, 6]]) for box in (one, other)]
        height = min(one[2] + one[5] / 2, other[2] + other[5] / 2) - max(one[2] - one[5] / 2, other[2] - other[5] / 2)
        shared = area_of(clipped(*bases) or [(0.0, 0.0)]) * max(height, 0.0)
        volumes = [float(box[3] * box[4] * box[5]) for box in (one, other)]
        return shared / (volumes[0] if mode == "iof" else sum(volumes) - shared)

    if aligned:
        return np.array([of(one, other) for one, other in zip(first, second, strict=True)])
    return np.array([[of(one, other) for other in second] for one in first])


def nms3d(boxes: np.ndarray, scores: np.ndarray, overlap: float, rotated: bool) -> np.ndarray:
    """The boxes as they are seen from above."""
    seen = boxes[:, [0, 1, 3, 4, 6]] * np.array([1, 1, 1, 1, int(rotated)])
    return np.array(suppressed(seen, scores, overlap, -math.inf), np.int64)


def running_extremes(x: np.ndarray, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Each element's predecessors, one after the other; the latest of equal ones counts."""
    values, places = np.zeros(x.shape), np.zeros(x.shape, np.int64)
    for place in np.ndindex(*x.shape):
        line = [float(number) for number in np.moveaxis(x, axis, 0)[(slice(None), *np.delete(place, axis))]]
        seen = line[: place[axis] + 1]
        values[place] = max(seen) if largest else min(seen)
        places[place] = max(i for i, number in enumerate(seen) if number == values[place])
    return values, places


def flattened(results: Any) -> Iterator[np.ndarray]:
    """The results as arrays."""
    for result in results if isinstance(results, tuple) else (results,):
        yield np.asarray(result)
