"""Non-maximum suppression that lowers scores instead of dropping boxes (arXiv:1704.04503)."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.overlap import check_choice
from opbridge.vision.formulas.precision import widened


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, count: int, *options: object) -> Sample:
        first = 20 * torch.rand(count, 2, generator=generator)
        boxes = torch.cat([first, first + 3 + 9 * torch.rand(count, 2, generator=generator)], 1)
        return Sample((boxes, torch.rand(count, generator=generator), *options), name=name)

    return [
        sample("linear", 12, 0.3, 0.5, 0.2),
        sample("Gaussian, with the last pixel", 9, 0.3, 0.5, 0.1, "gaussian", 1),
        sample("naive", 14, 0.2, 0.5, 0.05, "naive"),
    ]


@operator("opbridge_vision::soft_nms", samples=_samples)
def soft_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    method: str = "linear",
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """The boxes whose lowered score is at least ``min_score``, by falling lowered score.

    The best box lowers the scores of the others by their overlap with it, then the best of these, and so on.

    Args:
        boxes: (n, 4): x and y of two corners, the smaller ones first.
        scores: (n,)
        iou_threshold: The overlap from which on a score is lowered; not for ``"gaussian"``.
        sigma: The width of the Gaussian.
        min_score: The lowest score that is returned.
        method: The factor of a score for an overlap o: ``"linear"`` 1 - o, ``"gaussian"`` exp(-o * o / sigma),
            ``"naive"`` 0.
        offset: What is added to the width and height of a box: 1 if its corners are pixels.

    Returns:
        The boxes with their lowered scores, (kept, 5), and their positions in ``boxes``, (kept,), int64.

    Raises:
        InputError: There is no such method.
    """
    check_choice("method", method, ("linear", "gaussian", "naive"))
    dtype, boxes, scores = boxes.dtype, widened(boxes), widened(scores)
    low, high = torch.maximum(boxes[:, None, :2], boxes[:, :2]), torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared = (high - low + offset).clamp(min=0).prod(2)
    areas = (boxes[:, 2:] - boxes[:, :2] + offset).prod(1)
    covered = areas[:, None] + areas - shared
    overlaps = torch.where(covered > 0, shared / torch.where(covered > 0, covered, 1), 0)
    if method == "gaussian":
        factors = torch.exp(-overlaps * overlaps / sigma)
    else:
        lowered = 1 - overlaps if method == "linear" else torch.zeros_like(overlaps)
        factors = torch.where(overlaps >= iou_threshold, lowered, 1)
    # A loop's tensors keep their strides while a model is captured.
    picked = _picked(scores.detach().contiguous(), factors.detach())
    places = torch.arange(scores.shape[0])
    of_earlier = torch.where(places[:, None] < places, factors[picked][:, picked], 1)
    final = scores[picked] * of_earlier.prod(0)
    kept = (final >= min_score).nonzero().squeeze(1)
    positions = picked[kept]
    return torch.cat([boxes[positions], final[kept][:, None]], 1).to(dtype), positions


def _picked(scores: Tensor, factors: Tensor) -> Tensor:
    """The boxes in the order in which they are the best of those that are left."""
    count = scores.shape[0]
    lowest = -torch.inf
    # One more, which is never the best: there is no largest of zero scores.
    scores, factors = pad(scores, (0, 1), value=lowest), pad(factors, (0, 1, 0, 1))
    places = torch.arange(count + 1)

    def go_on(place: Tensor, remaining: Tensor, picked: Tensor) -> Tensor:
        return place < count

    def pick(place: Tensor, remaining: Tensor, picked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best = remaining.argmax(0, keepdim=True)
        is_left = (remaining > lowest) & (places != best)
        others = torch.where(is_left, remaining * factors.index_select(0, best).squeeze(0), lowest)
        return place + 1, others, torch.where(places == place, best, picked)

    start = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(go_on, pick, (start, scores, torch.zeros_like(places)))[2][:count]


soft_nms.kernel("soft_nms.h")
