"""Convolutions in float64, of integers, and with a dynamic number of groups, as matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import Sample, decomposition, rewrite
from opbridge.catalog.formulas.element_types import only_for
from opbridge.catalog.formulas.windows import windows


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def image(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    plain = (image(2, 3, 7, 8), image(4, 3, 3, 2), image(4), [2, 1], [1, 0], [1, 2], False, [0, 0], 1)
    transposed = (image(2, 4, 5), image(4, 3, 3), image(6), [3], [1], [2], True, [1], 2)
    volume = (image(1, 2, 4, 5, 3), image(2, 1, 2, 3, 1), None, [1], [0], [1], False, [0], 2)
    whole = (torch.arange(24).reshape(1, 2, 12), torch.arange(12).reshape(2, 2, 3), None, [2], [1], [1], False, [0], 1)
    return [
        Sample(plain, name="strided and dilated"),
        Sample(transposed, name="transposed, in groups"),
        Sample(volume, name="in three dimensions, without bias"),
        Sample(whole, name="integers"),
    ]


def _spread(x: Tensor, axis: int, stride: int) -> Tensor:
    """Insert ``stride`` - 1 zeros between the elements along an axis."""
    if stride == 1:
        return x
    apart = torch.nn.functional.pad(x.unsqueeze(axis + 1), [0, 0] * (x.dim() - axis - 1) + [0, stride - 1])
    joined = apart.reshape(*x.shape[:axis], x.shape[axis] * stride, *x.shape[axis + 1 :])
    return joined.narrow(axis, 0, joined.shape[axis] - stride + 1)


def _padded(x: Tensor, amounts: Sequence[tuple[int, int]]) -> Tensor:
    flat = [amount for pair in reversed(amounts) for amount in pair]
    return torch.nn.functional.pad(x, flat) if any(flat) else x


def _correlated(x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor:
    """The convolution of a padded image."""
    dims = weight.dim() - 2
    counts = []
    for d in range(dims):
        reach = dilation[d] * (weight.shape[2 + d] - 1) + 1
        counts.append((x.shape[2 + 2 * d] - reach) // stride[d] + 1)
        x = windows(x, 2 + 2 * d, weight.shape[2 + d], counts[d], stride[d], dilation[d])
    batch, channels = x.shape[:2]
    x = x.reshape(batch, groups, channels // groups, *x.shape[2:])
    outer, inner = [3 + 2 * d for d in range(dims)], [4 + 2 * d for d in range(dims)]
    columns = x.permute(1, 0, *outer, 2, *inner)
    terms = weight[0].numel()
    columns = columns.reshape(groups, -1, terms)
    matrix = weight.reshape(groups, weight.shape[0] // groups, terms)
    products = torch.matmul(columns, matrix.transpose(1, 2))
    products = products.reshape(groups, batch, *counts, weight.shape[0] // groups)
    order = [1, 0, 2 + dims, *range(2, 2 + dims)]
    return products.permute(order).reshape(batch, weight.shape[0], *counts)


def _flipped(weight: Tensor, groups: int) -> Tensor:
    """The weights of the convolution that is equivalent to a transposed convolution."""
    spatial = weight.shape[2:]
    apart = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], *spatial).transpose(1, 2)
    joined = apart.reshape(groups * weight.shape[1], weight.shape[0] // groups, *spatial)
    return joined.flip(list(range(2, weight.dim())))


def of_axes(value: int | Sequence[int], rank: int) -> list[int]:
    """An argument of a convolution for each axis; one number can stand for all axes."""
    values = [value] if isinstance(value, (int, torch.SymInt)) else list(value)
    return values * (rank // len(values))


def convolution_as_product(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution in any element type, with the arguments of ``aten::convolution``; all sizes may be dynamic.

    A transposed convolution is computed as a convolution of the image with zeros between its elements and flipped
    weights (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, chapter 4).
    """
    dims = weight.dim() - 2
    stride, padding, dilation, output_padding = (
        of_axes(value, dims) for value in (stride, padding, dilation, output_padding)
    )
    if transposed:
        for d in range(dims):
            input = _spread(input, 2 + d, stride[d])
        reach = [dilation[d] * (weight.shape[2 + d] - 1) for d in range(dims)]
        amounts = [(reach[d] - padding[d], reach[d] - padding[d] + output_padding[d]) for d in range(dims)]
        result = _correlated(_padded(input, amounts), _flipped(weight, groups), [1] * dims, dilation, groups)
    else:
        amounts = [(amount, amount) for amount in padding]
        result = _correlated(_padded(input, amounts), weight, stride, dilation, groups)
    return result if bias is None else result + bias.reshape(1, -1, *[1] * dims)


@decomposition("aten::convolution", samples=_samples, overrides="engines support convolutions only in float32")
@only_for(torch.float64, torch.int64, torch.int32)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution of any rank, for float64 and integers: the product of a matrix of windows with the weights.

    convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation,
    bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor
    """
    return convolution_as_product(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@rewrite("torch.conv_transpose1d")
@rewrite("torch.conv_transpose2d")
@rewrite("torch.conv_transpose3d")
def transposed_in_dynamic_groups(
    original: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """A matrix product if the number of groups is a dynamic size: it is an attribute of ONNX's ConvTranspose.

    conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=1, SymInt[1] padding=0,
    SymInt[1] output_padding=0, SymInt groups=1, SymInt[1] dilation=1) -> Tensor
    """
    if isinstance(groups, int):
        return NotImplemented
    rank = weight.dim() - 2
    steps, amounts, more, apart = (of_axes(value, rank) for value in (stride, padding, output_padding, dilation))
    return convolution_as_product(input, weight, bias, steps, amounts, apart, True, more, groups)
