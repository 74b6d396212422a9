"""flex_attention with functions of scores and positions, at dynamic lengths, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from roundtrip import travel
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile", "ignore:return_lse")

HEADS = 4


def in_window(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) & (query - key < 3)


def first_key_only(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (key == 0) & (query > 0)


def mask_of(function: Any, q: Tensor, k: Tensor) -> BlockMask:
    return create_block_mask(function, None, None, q.shape[2], k.shape[2], device="cpu")


class Attention(nn.Module):
    """A bias by head and distance, masks, groups of heads, and the logarithm of the sum of exponentials."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(HEADS, 32))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score + self.table[head][(query - key).abs()]

        windowed, lse = flex_attention(
            q, k, v, score_mod=biased, block_mask=mask_of(in_window, q, k), enable_gqa=True, return_lse=True
        )
        # No key is allowed for the first query.
        return windowed, lse, flex_attention(q, k, v, block_mask=mask_of(first_key_only, q, k), enable_gqa=True)


def tensors(length: int, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(batch, HEADS, length, 8), *torch.randn(2, batch, HEADS // 2, length, 8)


@pytest.mark.sweep
def test_functions_of_scores_and_positions_at_other_lengths() -> None:
    shapes = {name: {0: "batch", 2: "length"} for name in "qkv"}
    trip = travel(Attention(), tensors(12), dynamic_shapes=shapes)
    for length in (12, 5, 31):
        trip.check(*tensors(length, batch=3))


@pytest.mark.slow
def test_a_function_of_scores_and_what_is_refused() -> None:
    def model(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, lambda score, batch, head, query, key: score - (query - key).abs(), scale=0.5)

    q, k, v = tensors(6)
    travel(model, (q, q, q)).check(*torch.randn(3, 2, HEADS, 6, 8))
    with pytest.raises(Exception, match="number of heads"):
        capture(model, (q, k, v), rewrites=Catalog.load().rewrites())
