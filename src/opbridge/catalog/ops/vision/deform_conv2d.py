"""Deformable convolution, as ONNX DeformConv or as a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset19 as op
from torch import Tensor

from opbridge.catalog.declare.spec import Sample, body_for, translation
from opbridge.kernels.declared import kernel_for

kernel_for("torchvision::deform_conv2d", "deform_conv2d.h")


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, *, groups: int = 1, offset_groups: int = 1, use_mask: bool = True, **where: Any) -> Sample:
        stride, pad, dilation = where.get("stride", (1, 1)), where.get("pad", (1, 1)), where.get("dilation", (1, 1))
        sizes = [
            (size + 2 * pad[i] - dilation[i] * (kernel - 1) - 1) // stride[i] + 1
            for i, (size, kernel) in enumerate(((7, 3), (8, 2)))
        ]
        image = torch.randn(2, 4, 7, 8, generator=generator)
        weight = torch.randn(6, 4 // groups, 3, 2, generator=generator)
        offset = 2 * torch.randn(2, 2 * offset_groups * 6, *sizes, generator=generator)
        mask = torch.rand(2, offset_groups * 6, *sizes, generator=generator) if use_mask else torch.zeros(2, 1)
        bias = torch.randn(6, generator=generator)
        numbers = (*stride, *pad, *dilation, groups, offset_groups, use_mask)
        return Sample((image, weight, offset, mask, bias, *numbers), name=name)

    return [
        sample("mask"),
        sample("no mask", use_mask=False),
        sample("groups", groups=2, offset_groups=2),
        sample("uneven", stride=(2, 1), pad=(0, 2), dilation=(1, 2)),
    ]


@translation(
    "torchvision::deform_conv2d",
    opset=19,
    samples=_samples,
    overrides="torch's mapping writes an opset 19 node into a graph of opset 18",
)
def deform_conv2d(
    input: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    """A convolution whose kernel points are shifted by ``offset`` and scaled by ``mask`` at every pixel.

    deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,
    SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,
    SymInt offset_groups, bool use_mask) -> Tensor

    torchvision and ONNX both order offsets as (group, kernel point, y before x) and masks as (group, kernel point), and
    both read zeros outside the image. torchvision passes a dummy mask if ``use_mask`` is false.
    """
    return op.DeformConv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        kernel_shape=list(weight.shape[2:]),
        strides=[stride_h, stride_w],
        pads=[pad_h, pad_w, pad_h, pad_w],
        dilations=[dilation_h, dilation_w],
        group=groups,
        offset_group=offset_groups,
    )


@body_for("torchvision::deform_conv2d")
def sampled(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Gather the sampled values for all channels of an offset group at once, and multiply them by the weights."""
    batch, channels, height, width = input.shape
    filters, per_group, taps_h, taps_w = weight.shape
    rows, columns = offset.shape[2:]
    taps, shared = taps_h * taps_w, channels // offset_groups
    moved = offset.reshape(batch, offset_groups, taps, 2, rows, columns)
    tap = torch.arange(taps).reshape(-1, 1, 1)
    starts_h = torch.arange(rows).reshape(-1, 1) * stride_h - pad_h
    starts_w = torch.arange(columns) * stride_w - pad_w
    y = moved[:, :, :, 0] + (starts_h + tap // taps_w * dilation_h).to(offset.dtype)
    x = moved[:, :, :, 1] + (starts_w + tap % taps_w * dilation_w).to(offset.dtype)
    pixels = input.reshape(batch, offset_groups, shared, height * width).transpose(2, 3).reshape(-1, shared)
    planes = (torch.arange(batch * offset_groups) * (height * width)).reshape(batch, offset_groups, 1, 1, 1)
    top, left = y.floor(), x.floor()
    total = torch.zeros((), dtype=input.dtype)
    for row, share_h in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, share_w in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row > -1) & (row < height) & (column > -1) & (column < width)
            at_row, at_column = (torch.where(inside, place, 0).long() for place in (row, column))
            places = (planes + at_row * width + at_column).reshape(-1)
            values = pixels.index_select(0, places).reshape(batch, offset_groups, -1, shared)
            share = (share_h * share_w).reshape(batch, offset_groups, -1, 1)
            total = total + torch.where(inside.reshape(share.shape), values * share, 0.0)
    if use_mask:
        total = total * mask.reshape(batch, offset_groups, -1, 1)
    sampled_columns = total.transpose(2, 3).reshape(batch, groups, per_group * taps, rows * columns)
    product = weight.reshape(groups, filters // groups, per_group * taps) @ sampled_columns
    return product.reshape(batch, filters, rows, columns) + bias.reshape(-1, 1, 1)
