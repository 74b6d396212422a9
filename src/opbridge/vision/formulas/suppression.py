"""Non-maximum suppression in each class of each image."""

import torch
from torch import Tensor

__all__ = ["suppress", "suppressors"]


def suppress(overlapping: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the boxes that no better kept box of their class overlaps.

    Args:
        overlapping: (images, boxes, boxes), bool: whether two boxes overlap too much.
        scores: (images, classes, boxes); of equal scores, the first is the better one.

    Returns:
        The scores from the best to the worst, the boxes in this order, and whether each of these is kept:
        (images, classes, boxes) each.
    """
    ordered, order, suppressor = suppressors(overlapping, scores)
    return ordered, order, suppressor < 0


def suppressors(overlapping: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the kept box that suppresses each box, with the arguments of :func:`suppress`.

    Returns:
        The scores from the best to the worst, the boxes in this order, and for each of these the place of its
        suppressor in this order, int64, or -1 if it is kept: (images, classes, boxes) each.
    """
    # A loop's tensors keep their strides while a model is captured.
    scores = scores.contiguous()
    ordered, order = torch.sort(scores, dim=2, descending=True, stable=True)
    rank = torch.argsort(order, 2)
    count = scores.shape[2]

    def go_on(place: Tensor, suppressor: Tensor) -> Tensor:
        return place < count

    def drop(place: Tensor, suppressor: Tensor) -> tuple[Tensor, Tensor]:
        best = order.index_select(2, place[None])
        is_kept = suppressor.gather(2, best) < 0
        dropped = overlapping.gather(1, best.expand(-1, -1, count)) & (rank > place) & (suppressor < 0) & is_kept
        return place + 1, torch.where(dropped, place, suppressor)

    start = torch.zeros((), dtype=torch.int64)
    # The order of zero boxes has other strides than what the loop makes.
    nothing = torch.full_like(order, -1, memory_format=torch.contiguous_format)
    _, suppressor = torch.while_loop(go_on, drop, (start, nothing))
    return ordered, order, suppressor.gather(2, order)
