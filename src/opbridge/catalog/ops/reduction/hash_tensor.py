"""The hash of a tensor, as ONNX nodes or as a custom node with a kernel."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, rewrite
from opbridge.catalog.formulas.bits import bits_of
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::HashTensor", "hash_tensor.h")

_PAIR = 2**32 + 1
"""Bits 0 and 32, whose sums do not overlap for up to 2**32 - 1 elements."""


@decomposition("aten::hash_tensor")
def hash_tensor(self: Tensor, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """The XOR of the bits of all elements as uint64, after conversion to float64 or int64.

    Axes of fixed sizes are folded in halves. For other axes the elements with each bit are counted, two bits at a time,
    and a bit is set if its count is odd.

    hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor
    """
    if mode != 0:
        return NotImplemented
    bits = bits_of(self.to(torch.float64 if self.is_floating_point() else torch.int64))
    if self.dim() == 0:
        return bits.to(torch.uint64)
    axes = list(dim) if len(dim) else list(range(self.dim()))
    if all(isinstance(self.shape[axis], int) and self.shape[axis] > 0 for axis in axes):
        return _folded(bits, axes, keepdim).to(torch.uint64)
    parities = []
    for place in range(32):
        pair = ((bits >> place) & 1) + ((bits >> (place + 32)) & 1) * 2**32
        parities.append((pair.sum(axes, keepdim=keepdim) & _PAIR) << place)
    return functools.reduce(operator.or_, parities).to(torch.uint64)


@kernel_translation("aten::hash_tensor")
def hash_tensor_with_kernel(self: Any, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """``hash_tensor`` as a custom node with a kernel.

    hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor

    0 is the only mode that PyTorch has.
    """
    axes = list(dim) if len(dim) or not self.shape else list(range(len(self.shape)))
    return custom_node("opbridge::HashTensor", self, dim=axes if self.shape else [], keepdim=keepdim)


@body_for("opbridge::HashTensor")
def body(x: Tensor, dim: Sequence[int], keepdim: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.hash_tensor(x, list(dim), keepdim=bool(keepdim))  # type: ignore[attr-defined, no-any-return]


@rewrite("torch.hash_tensor")
def hash_of_dynamic_sizes(
    original: Callable[..., Tensor],
    input: Tensor,
    dim: int | Sequence[int] = (),
    *,
    keepdim: bool = False,
    mode: int = 0,
) -> Any:
    """Keep dynamic sizes dynamic; torch's shape function makes them constant.

    hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor
    """
    if have_fixed_sizes(input):
        return NotImplemented
    return hash_tensor(input, (dim,) if isinstance(dim, int) else dim, keepdim=keepdim, mode=mode)


def _folded(bits: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    """Combine one half of the elements with the other until one is left, in log2(length) steps."""
    axes = [axis % bits.dim() for axis in axes]
    kept = [axis for axis in range(bits.dim()) if axis not in axes]
    shape = [1 if axis in axes else bits.shape[axis] for axis in range(bits.dim()) if keepdim or axis in kept]
    length = math.prod(bits.shape[axis] for axis in axes)
    rows = bits.permute([*axes, *kept]).reshape([length, *(bits.shape[axis] for axis in kept)])
    while length > 1:
        half = (length + 1) // 2
        later = rows.narrow(0, half, length - half)
        if length % 2:
            later = torch.cat([later, torch.zeros_like(rows.narrow(0, 0, 1))])
        rows, length = rows.narrow(0, 0, half) ^ later, half
    return rows.reshape(shape)
