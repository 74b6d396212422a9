"""Situations that opbridge refuses, changed as the printed fix says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from side_by_side import Situation
from situations import REPORTS
from torch import nn

__all__ = ["FIXES", "Fix", "situation"]


@dataclasses.dataclass(frozen=True)
class Fix:
    """A printed fix.

    Attributes:
        text: What was done.
        apply: Makes the changed situation from the refused one.
    """

    text: str
    apply: Callable[[Situation], Situation]


class PaddedInput(nn.Module):
    """Rows of several lengths, padded; what lies beyond them is 0 afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Project (rows, length, 5), of which each row has its own length."""
        return self.project(x) * (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(2)


def _padded(situation: Situation) -> Situation:
    (nested,) = situation.args
    lengths = torch.tensor([row.shape[0] for row in nested.unbind()])
    return Situation(PaddedInput(), (nested.to_padded_tensor(0.0), lengths))


FIXES = {
    "a jagged tensor as the input": Fix("the input is padded, and the model takes the lengths of its rows", _padded),
}


def situation(name: str) -> Situation:
    """The changed situation of a report."""
    return FIXES[name].apply(REPORTS[name].make())
