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


def grid(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.affine_grid(x[:, :6].unflatten(1, (2, 3)), [x.shape[0], 1, 4, 5], align_corners=False)


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
    "grids": (lambda: grid, 2),
    "sums of differences": (lambda: lambda x: torch.cdist(x, x.flip(1), p=1.0), 2),
}


@pytest.mark.quick("batch normalization of rows", "grids", every=9)
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
    if not name.startswith(("instance", "average", "grids")):  # PyTorch refuses no rows, or their mean is NaN.
        trip.check(*inputs(-1, -1))


def attention(causal: bool, masked: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def model(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(int(lengths.max()))
        query = x[:, :, None] * (1 + positions[:, None]).cos()
        mask = (positions < lengths[:, None])[:, None, None] if masked else None
        return nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask, is_causal=causal)

    return model


@pytest.mark.quick("True-False", every=3)
@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (False, True)])
def test_attention_of_a_length_that_depends_on_data(causal: bool, masked: bool) -> None:
    def inputs(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(2, 3, 4), torch.tensor(lengths)

    trip = travel(attention(causal, masked), inputs(3, 5))
    for lengths in ((3, 5), (1, 1), (7, 0)):
        trip.check(*inputs(*lengths))


@pytest.mark.quick(every=9)
@pytest.mark.parametrize("layer", ["MultiheadAttention", "TransformerEncoderLayer"])
def test_a_layer_with_attention_of_a_length_that_depends_on_data(layer: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = (nn.MultiheadAttention, nn.TransformerEncoderLayer)[layer.startswith("T")]
            self.layer = made(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(int(lengths.max()))
            x, padding = x[:, None] * (1 + positions[:, None]).cos(), positions >= lengths[:, None]
            if layer == "TransformerEncoderLayer":
                return self.layer(x, src_key_padding_mask=padding)
            return self.layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]

    trip = travel(Model().eval(), (torch.randn(2, 8), torch.tensor([3, 5])))
    for lengths in ((3, 5), (1, 1), (6, 2)):
        trip.check(torch.randn(2, 8), torch.tensor(lengths))
