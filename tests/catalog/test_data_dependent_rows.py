"""Layers on a number of rows that only the data decide, such as the boxes that a detector proposes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from roundtrip import travel
from torch import nn


def batch_norm(rank: int) -> nn.Module:
    layer = {2: nn.BatchNorm1d, 4: nn.BatchNorm2d}[rank](8)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    return layer


def tracked() -> nn.Module:
    layer = nn.InstanceNorm2d(8, track_running_stats=True, affine=True)
    layer.running_mean.normal_()
    return layer


LAYERS: dict[str, tuple[Callable[[], Callable[[torch.Tensor], torch.Tensor]], int]] = {
    "batch normalization of rows": (lambda: batch_norm(2), 2),
    "batch normalization of images": (lambda: batch_norm(4), 4),
    "instance normalization": (lambda: nn.InstanceNorm2d(8, affine=True), 4),
    "instance normalization by running statistics": (tracked, 4),
    "local response normalization": (lambda: nn.LocalResponseNorm(3, k=0.5), 4),
    "local response normalization of series": (lambda: nn.LocalResponseNorm(2), 3),
    "channel shuffle": (lambda: nn.ChannelShuffle(4), 4),
    "average of all": (lambda: lambda x: nn.functional.adaptive_avg_pool1d(x.T[None] + 1, 1), 2),
    "average of windows": (lambda: lambda x: nn.functional.adaptive_avg_pool2d(x.T[None], (3, None)), 2),
    "roll": (lambda: lambda x: x.roll((2, -1), (0, 1)), 3),
    "roll of all elements": (lambda: lambda x: torch.roll(x, 3), 2),
    "distances": (lambda: lambda x: torch.cdist(x, x + 0.5), 2),
    "distances by a product": (lambda: lambda x: torch.cdist(x, x + 1, compute_mode="use_mm_for_euclid_dist"), 2),
    "sums of differences": (lambda: lambda x: torch.cdist(x, x.flip(1), p=1.0), 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_the_rows_that_are_kept(name: str) -> None:
    make, rank = LAYERS[name]
    layer = make()
    if isinstance(layer, nn.Module):
        layer.eval()

    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return self.layer(x[scores > 0])

    def inputs(*scores: float) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(len(scores), 8, *[6, 5][: rank - 2]), torch.tensor(scores)

    trip = travel(Kept(), inputs(1, -1, 1), dynamic_shapes=({0: "n"}, {0: "n"}))
    for scores in ((1, -1, 1), (1, 1, 1, 1, -1), (-1, 1)):
        trip.check(*inputs(*scores))
    if not name.startswith(("instance", "average")):  # PyTorch refuses no rows, or their mean is NaN.
        trip.check(*inputs(-1, -1))
