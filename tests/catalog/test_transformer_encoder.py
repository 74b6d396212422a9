"""Padded positions of a transformer encoder are what PyTorch computes in inference, whatever the mask of a run."""

from __future__ import annotations

import pytest
import torch

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog

AT_THE_END = [[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]
ELSEWHERE = [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]


class Encoder(torch.nn.Module):
    def __init__(self, norm: torch.nn.LayerNorm | None, **options: bool) -> None:
        super().__init__()
        if norm is not None:
            torch.nn.init.ones_(norm.bias)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, norm, **options)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


@pytest.mark.quick("normalized-dtype0", every=3)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize(
    ("norm", "options"),
    [(None, {}), (torch.nn.LayerNorm(8), {}), (None, {"enable_nested_tensor": False})],
    ids=["zeros", "normalized", "without nested tensors"],
)
@torch.no_grad()
def test_padded_positions(norm: torch.nn.LayerNorm | None, options: dict[str, bool], dtype: torch.dtype) -> None:
    module = Encoder(norm, **options).eval()
    masks = [torch.tensor(rows).bool() for rows in (AT_THE_END, ELSEWHERE)]
    if dtype is torch.float32:
        masks = [torch.zeros(2, 5).masked_fill(mask, float("-inf")) for mask in masks]
    x = torch.randn(2, 5, 8)
    program = capture(module, (x, masks[0]), rewrites=Catalog.load().rewrites()).program.module()
    for mask in masks:
        torch.testing.assert_close(program(x, mask), module(x, mask), rtol=1e-4, atol=1e-5)
    at_padding = module(x, masks[0])[0, 3:]
    assert (at_padding == (0 if norm is None else 1)).all() == (not options)
