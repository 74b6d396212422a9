"""Situations that opbridge refuses, changed as the printed fix says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from side_by_side import Situation
from situations import REPORTS, interfaces
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


class CallsModule(nn.Module):
    """``CallsScripted`` with the module and the function from which TorchScript made its parts."""

    def __init__(self, scripted: interfaces.CallsScripted) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
        self.inner.load_state_dict(scripted.inner.state_dict())

    def forward(self, text: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same as ``CallsScripted.forward``."""
        scaled, total = interfaces.scripted_scale(text, lengths)
        return self.inner(scaled), total


def _module_before_mkldnn(situation: Situation) -> Situation:
    return dataclasses.replace(situation, model=nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval())


FIXES = {
    "a jagged tensor as the input": Fix("the input is padded, and the model takes the lengths of its rows", _padded),
    "weights in MKL-DNN's layout": Fix("the nn.Module before to_mkldnn is exported", _module_before_mkldnn),
    "TorchScript inside the model": Fix(
        "the nn.Module with the weights of the TorchScript module is exported",
        lambda situation: dataclasses.replace(situation, model=CallsModule(situation.model)),
    ),
}


def situation(name: str) -> Situation:
    """The changed situation of a report."""
    return FIXES[name].apply(REPORTS[name].make())
