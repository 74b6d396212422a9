"""Connectionist temporal classification loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite

_NONE, _MEAN, _SUM = 0, 1, 2


def _lengths(value: Tensor | Sequence[int]) -> Tensor:
    given = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.int64)
    return given.to(torch.int64).reshape(-1)


def _rows(targets: Tensor, lengths: Tensor, longest: int | None) -> Tensor:
    """The targets as rows (N, S), whether they are given as rows or concatenated."""
    if targets.dim() == 2:
        return targets
    width = targets.shape[0] if longest is None else longest
    begin = torch.cumsum(lengths, 0) - lengths
    place = begin.unsqueeze(1) + torch.arange(width)
    padded = torch.cat([targets, targets.new_zeros(1)])
    return padded[place.clamp_max(targets.shape[0])]


def _later(alpha: Tensor, by: int) -> Tensor:
    return torch.nn.functional.pad(alpha, [by, 0], value=-math.inf)[:, : alpha.shape[1]]


def _log_sum(*terms: Tensor) -> Tensor:
    """Log-sum-exp, also if all elements are -inf."""
    stacked = torch.stack(terms)
    largest = stacked.amax(0)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    return torch.log(torch.exp(stacked - largest).sum(0)) + largest


def _log_likelihood(log_probs: Tensor, labels: Tensor, steps: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The forward recursion over time, for (T, N, C) and labels (N, 2 S + 1) with a blank at every even index."""
    skips = (labels != blank) & (labels != torch.nn.functional.pad(labels, [2, 0], value=blank)[:, : labels.shape[1]])
    place = torch.arange(labels.shape[1])
    first = log_probs[0].gather(1, labels)
    alpha = torch.where((place < 2) & (place <= 2 * lengths.unsqueeze(1)), first, -math.inf)

    def unfinished(time: Tensor, alpha: Tensor) -> Tensor:
        return time < log_probs.shape[0]

    def advance(time: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        emission = log_probs.index_select(0, time.reshape(1)).squeeze(0).gather(1, labels)
        jumped = torch.where(skips, _later(alpha, 2), -math.inf)
        following = _log_sum(alpha, _later(alpha, 1), jumped) + emission
        return time + 1, torch.where(time < steps.unsqueeze(1), following, alpha)

    _, alpha = torch.while_loop(unfinished, advance, (torch.ones((), dtype=torch.int64), alpha))
    last = 2 * lengths.unsqueeze(1)
    before = alpha.gather(1, (last - 1).clamp_min(0))
    result = _log_sum(alpha.gather(1, last), torch.where(last > 0, before, -math.inf)).squeeze(1)
    empty = torch.where(lengths == 0, 0.0, -math.inf).to(result.dtype)
    return torch.where(steps == 0, empty, result)


@rewrite("torch.ctc_loss")
def torch_ctc_loss(
    original: Callable[..., Tensor],
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = _MEAN,
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log probability of ``targets`` (N, S or concatenated) under (T, N, C) or (T, C).

    ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0,
    int reduction=Mean, bool zero_infinity=False) -> Tensor

    One loop over time computes the logarithms of the forward variables of A. Graves et al., "Connectionist temporal
    classification", 2006, equations 6 and 7. torch's operator reads the lengths in Python and cannot be captured.
    """
    is_batch = log_probs.dim() == 3
    x = log_probs if is_batch else log_probs.unsqueeze(1)
    steps, lengths = _lengths(input_lengths), _lengths(target_lengths)
    longest = None if isinstance(target_lengths, Tensor) else max(target_lengths, default=0)
    rows = _rows(targets.to(torch.int64), lengths, longest)
    blanks = torch.full_like(rows, blank)
    labels = torch.nn.functional.pad(torch.stack([blanks, rows], -1).flatten(1), [0, 1], value=blank)
    loss = -_log_likelihood(x, labels, steps, lengths, blank)
    loss = torch.where(loss == math.inf, 0.0, loss) if zero_infinity else loss
    if reduction == _NONE:
        return loss if is_batch else loss.squeeze(0)
    return (loss / lengths.clamp_min(1)).mean() if reduction == _MEAN else loss.sum()


@rewrite("torch.nn.functional.ctc_loss")
def ctc_loss(
    original: Callable[..., Tensor],
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Replace the Python function that calls torch's operator."""
    number = {"none": _NONE, "mean": _MEAN, "sum": _SUM}[reduction]
    return torch_ctc_loss(original, log_probs, targets, input_lengths, target_lengths, blank, number, zero_infinity)
