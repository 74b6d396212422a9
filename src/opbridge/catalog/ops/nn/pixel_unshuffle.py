"""Pixel shuffle and unshuffle, also for empty images."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::pixel_unshuffle", overrides="torch's mapping fails for an empty tensor")
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange (.., C, H r, W r) as (.., C r r, H, W).

    pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor
    """
    *batch, channels, height, width = self.shape
    factor = downscale_factor
    if factor == 1:
        return self.clone()
    rows, columns = height // factor, width // factor
    blocks = self.reshape([*batch, channels, rows, factor, columns, factor])
    order = [*range(len(batch) + 1), *(len(batch) + place for place in (2, 4, 1, 3))]
    return blocks.permute(order).reshape([*batch, channels * factor * factor, rows, columns])


@decomposition("aten::pixel_shuffle", overrides="torch's mapping fails for an empty tensor")
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange (.., C r r, H, W) as (.., C, H r, W r); four dimensions are left to ONNX's DepthToSpace.

    pixel_shuffle(Tensor self, int upscale_factor) -> Tensor
    """
    *batch, channels, height, width = self.shape
    factor = upscale_factor
    if factor == 1:
        return self.clone()
    if self.dim() == 4 and not any(isinstance(size, int) and size == 0 for size in self.shape):
        return NotImplemented
    kept = channels // (factor * factor)
    blocks = self.reshape([*batch, kept, factor, factor, height, width])
    order = [*range(len(batch) + 1), *(len(batch) + place for place in (3, 1, 4, 2))]
    return blocks.permute(order).reshape([*batch, kept, height * factor, width * factor])
