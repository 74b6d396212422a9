"""Convolutions with dynamic paddings, kernels of dynamic size, or a dynamic number of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.ops.nn.convolution import convolution_as_product, of_axes


@rewrite("torch.conv1d")
@rewrite("torch.conv2d")
@rewrite("torch.conv3d")
def padded_before(
    original: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Pad before the convolution, because ONNX's pads are constants; an odd padding adds one more element at the end.

    The number of groups is a constant too: a convolution in a dynamic number of groups is a product of matrices.

    conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, str padding="valid",
    SymInt[1] dilation=1, SymInt groups=1) -> Tensor
    """
    sizes = weight.shape[2:]
    if isinstance(padding, str):
        if padding != "same" or all(isinstance(size, int) for size in sizes):
            return NotImplemented
        steps = of_axes(dilation, len(sizes))
        reach = [step * (size - 1) for step, size in zip(steps, sizes, strict=True)]
        amounts = [(more // 2, more - more // 2) for more in reach]
    elif not isinstance(groups, int):
        steps, paddings, apart = (of_axes(value, len(sizes)) for value in (stride, padding, dilation))
        return convolution_as_product(input, weight, bias, steps, paddings, apart, False, [0], groups)
    else:
        amounts = [(amount, amount) for amount in of_axes(padding, len(sizes))]
        if all(isinstance(amount, int) for amount, _ in amounts):
            return NotImplemented
    padded = torch.nn.functional.pad(input, [amount for pair in reversed(amounts) for amount in pair])
    return original(padded, weight, bias, stride, 0, dilation, groups)
