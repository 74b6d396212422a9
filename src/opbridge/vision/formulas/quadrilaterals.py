"""Convex quadrilaterals: x and y of four corners, in order."""

import torch
from torch import Tensor

__all__ = ["areas", "shared_areas"]


def areas(quads: Tensor) -> Tensor:
    """The areas (...) of quadrilaterals (..., 8): half the cross product of the diagonals."""
    x0, y0, x1, y1, x2, y2, x3, y3 = quads.unbind(-1)
    return ((x2 - x0) * (y3 - y1) - (x3 - x1) * (y2 - y0)).abs() / 2


def shared_areas(first: Tensor, second: Tensor) -> Tensor:
    """The areas (...) that the quadrilaterals of ``first`` (..., 8) share with those of ``second`` (..., 8).

    The height of the intersection is piecewise linear along x, with bends only at corners and where two edges cross.
    Between bends, the mean height is that in the middle. Crossings outside of an edge are clamped to it: a bend where
    there is none changes nothing, so coinciding edges are no special case.
    """
    corners = [quads.reshape(*quads.shape[:-1], 4, 2) for quads in torch.broadcast_tensors(first, second)]
    # Relative to a corner, which is more precise.
    origin = corners[0][..., :1, :]
    starts = [points - origin for points in corners]
    edges = [points.roll(-1, -2) - points for points in starts]
    start, edge = starts[0][..., :, None, :], edges[0][..., :, None, :]
    between, other = starts[1][..., None, :, :] - start, edges[1][..., None, :, :]
    turn = _cross(edge, other)
    share = (_cross(between, other) / torch.where(turn == 0, 1, turn)).clamp(0, 1)
    crossings = (start[..., 0] + share * edge[..., 0]).flatten(-2)
    bends = torch.cat([starts[0][..., 0], starts[1][..., 0], crossings], -1).sort(-1).values
    begin, end = bends[..., :-1], bends[..., 1:]
    middle = (begin + end) / 2
    (bottom, top), (other_bottom, other_top) = (_extent(*pair, middle) for pair in zip(starts, edges, strict=True))
    height = torch.minimum(top, other_top) - torch.maximum(bottom, other_bottom)
    return ((end - begin) * height.clamp(min=0)).sum(-1)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - b[..., 0] * a[..., 1]


def _extent(starts: Tensor, edges: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest y of polygons at x (..., k); beside them, infinity and minus infinity."""
    begin, way = starts[..., None, :, 0], edges[..., None, :, 0]
    share = (x[..., None] - begin) / torch.where(way == 0, 1, way)
    y = starts[..., None, :, 1] + share * edges[..., None, :, 1]
    has_x = (share >= 0) & (share <= 1) & (way != 0)
    lowest = torch.where(has_x, y, torch.inf).amin(-1)
    return lowest, torch.where(has_x, y, -torch.inf).amax(-1)
