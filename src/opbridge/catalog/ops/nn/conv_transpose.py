"""Transposed convolutions, also with dynamic paddings, or an output padding as large as the stride or larger."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.ops.nn.convolution import of_axes

_WHY = "ONNX Runtime rejects an output padding that is as large as the stride"


@decomposition("aten::conv_transpose1d", overrides=_WHY)
@decomposition("aten::conv_transpose2d.input", overrides=_WHY)
@decomposition("aten::conv_transpose3d.input", overrides=_WHY)
def conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """A transposed convolution over the last one, two or three axes of (.., C, spatial axes).

    conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0,
    SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> Tensor
    conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0,
    SymInt[2] output_padding=0, SymInt groups=1, SymInt[2] dilation=1) -> Tensor
    conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0,
    SymInt[3] output_padding=0, SymInt groups=1, SymInt[3] dilation=1) -> Tensor
    """
    rank = weight.dim() - 2
    stride, padding, output_padding, dilation = (
        of_axes(value, rank) for value in (stride, padding, output_padding, dilation)
    )
    x = input if input.dim() == rank + 2 else input.unsqueeze(0)
    is_constant = all(isinstance(amount, int) for amount in (*padding, *output_padding))
    if is_constant and all(extra < step for extra, step in zip(output_padding, stride, strict=True)):
        arguments = (stride, padding, dilation, True, output_padding, groups)
        result = torch.ops.aten.convolution(x, weight, bias, *arguments)
    else:
        # The full result, cropped, or extended with elements that no input reaches and that hold the bias alone.
        none = [0] * rank
        whole = torch.ops.aten.convolution(x, weight, None, stride, none, dilation, True, none, groups)
        most = [
            extra if is_constant else max(*steps) - 1
            for extra, *steps in zip(output_padding, stride, dilation, strict=True)
        ]
        result = torch.nn.functional.pad(whole, [amount for extra in reversed(most) for amount in (0, extra)])
        for axis, (cut, extra) in enumerate(zip(padding, output_padding, strict=True), 2):
            result = result.narrow(axis, cut, whole.shape[axis] + extra - 2 * cut)
        result = result if bias is None else result + bias.reshape([-1] + [1] * rank)
    return result if input.dim() == rank + 2 else result.squeeze(0)
