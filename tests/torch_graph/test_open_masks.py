"""Masks of attention that hide nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from roundtrip import travel
from torch.nn import functional as F

from opbridge.catalog.declare.nan import ABSENT


def written(x: Any) -> Any:
    """A mask into a view of which something is written."""
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool)
    mask[1:].select(1, 0).fill_(False)
    return mask


OPEN: dict[str, Callable[[Any], Any]] = {
    "positions from 0": lambda x: (torch.arange(x.shape[-2]) + 0 >= 0)[None, None, :, None].expand(2, 1, -1, 7),
    "ones": lambda x: torch.ones(x.shape[-2], 7, dtype=torch.bool) & (torch.arange(7) > -1),
    "a number for all": lambda x: torch.full((7, 1), 3).to(torch.bool),
}

HIDING: dict[str, Callable[[Any], Any]] = {
    "positions from 1": lambda x: (torch.arange(x.shape[-2]) >= 1)[None],
    "positions of each other": lambda x: torch.arange(7)[:, None] >= torch.arange(7),
    "of the input": lambda x: torch.ones(7, dtype=torch.bool) & (x[..., :, 0] > -9)[..., None, :],
    "written into": written,
    "rounded down": lambda x: torch.full((7, 7), 0.5).to(torch.int64) + torch.arange(7) >= 1,
    "falling positions": lambda x: (torch.arange(6, -1, -1) >= 3)[None],
}


class Attention(torch.nn.Module):
    """Attention of the tokens to each other with a mask that is computed from them."""

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask(x))


@pytest.mark.quick("positions from 0", "written into", every=3)
@pytest.mark.parametrize("name", [*OPEN, *HIDING])
def test_a_mask_that_hides_nothing_is_left_out(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 8)
    trip = travel(Attention({**OPEN, **HIDING}[name]), (x,), nan=ABSENT)
    assert ("IsNaN" not in trip.op_types) is (name in OPEN)
    trip.check(x.flip(0))
