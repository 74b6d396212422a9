"""The logarithm of a sum of exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import FLOATING, only_for


@decomposition("aten::logsumexp", overrides="ONNX Runtime's ReduceLogSumExp is wrong for elements of -inf")
@only_for(*FLOATING)
def logsumexp(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over some axes or all, scaled by the largest element.

    logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor
    """
    axes = [axis % max(self.dim(), 1) for axis in dim] or list(range(self.dim()))
    if any(isinstance(self.shape[axis], int) and self.shape[axis] == 0 for axis in axes if self.dim()):
        return NotImplemented
    largest = torch.amax(self, axes, keepdim=True)
    shift = torch.where(largest.abs() == math.inf, 0, largest)
    total = torch.log(torch.sum(torch.exp(self - shift), axes, keepdim=True)) + shift
    return total if keepdim or self.dim() == 0 else total.squeeze(axes)
