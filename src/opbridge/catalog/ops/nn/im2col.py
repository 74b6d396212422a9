"""The windows of an image as columns, also for an empty batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.pooling import pooled_length


@decomposition("aten::im2col", overrides="torch's mapping fails for an empty batch")
def im2col(
    self: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """The windows of (N, C, H, W) as (N, C kernel_h kernel_w, windows).

    im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor
    """
    x = self if self.dim() == 4 else self.unsqueeze(0)
    padded, places, counts = torch.nn.functional.pad(x, [padding[1], padding[1], padding[0], padding[0]]), [], []
    for axis in range(2):
        reach = dilation[axis] * (kernel_size[axis] - 1) + 1
        counts.append(pooled_length(x.shape[2 + axis], reach, stride[axis], padding[axis], False))
        offset = (torch.arange(kernel_size[axis]) * dilation[axis]).unsqueeze(-1)
        places.append(offset + torch.arange(counts[axis]) * stride[axis])
    rows, columns = places
    pixels = rows[:, None, :, None] * padded.shape[3] + columns[None, :, None, :]
    windows = padded.flatten(2).index_select(2, pixels.reshape(-1))
    batch, channels = x.shape[:2]
    result = windows.reshape(batch, channels * kernel_size[0] * kernel_size[1], counts[0] * counts[1])
    return result if self.dim() == 4 else result.squeeze(0)
