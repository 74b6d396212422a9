"""Convolutions over volumes with a dynamic number of output channels and without a bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::conv3d", overrides="without a bias, torch's mapping adds one of rank 2")
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
) -> Any:
    """The convolution with a bias of zeros; with a fixed number of output channels torch's mapping is kept.

    conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0,
    SymInt[3] dilation=1, SymInt groups=1) -> Tensor
    """
    if bias is not None or isinstance(weight.shape[0], int):
        return NotImplemented
    zeros = torch.zeros(weight.shape[0], dtype=weight.dtype)
    return torch.ops.aten.conv3d(input, weight, zeros, stride, padding, dilation, groups)
