"""Memory as numbers of another type: by arithmetic, or as a custom node with a kernel that copies the bytes."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import Sample, body_for, decomposition, kernel_translation
from opbridge.catalog.formulas.bits import HAVE_BITS, bits_of, from_bits
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::BitCast", "bit_cast.h")


def _samples() -> list[Sample]:
    torch.manual_seed(0)
    special = [0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan"), 1e-7, -65504.0]
    return [
        *(
            Sample((torch.tensor(special).to(of), to), name=f"{of}-{to}")
            for of, to in (
                (torch.float32, torch.int32),
                (torch.float16, torch.int16),
                (torch.float64, torch.int64),
                (torch.float64, torch.float32),
                (torch.float32, torch.uint8),
            )
        ),
        Sample((torch.tensor([0, -1, 1 << 30, 1 << 23, 1, (1 << 23) - 1], dtype=torch.int32), torch.float32), name="i"),
        Sample((torch.tensor([0, 1, -(2**63), 2**52, 2**52 - 1, 2**62]), torch.float64), name="wide"),
        Sample((torch.randint(0, 256, (3, 16), dtype=torch.uint8), torch.float32), name="joined"),
        Sample((torch.randint(0, 256, (3, 16), dtype=torch.uint8), torch.int64), name="signed"),
        Sample((torch.randint(-(2**62), 2**62, (3, 2)), torch.int16), name="cut"),
        Sample((torch.randint(-128, 128, (4,), dtype=torch.int8), torch.uint8), name="sign"),
        Sample((torch.arange(-3000, 3000, 7).to(torch.int16), torch.float16), name="half"),
    ]


@decomposition("aten::view.dtype", samples=_samples)
def view_dtype(self: Tensor, dtype: torch.dtype) -> Any:
    """The bytes of the elements, in little-endian order, as elements of another type; the last axis changes its length.

    view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)
    """
    if self.is_complex():
        return view_dtype(torch.view_as_real(self).flatten(-2), dtype)
    if dtype.is_complex:
        parts = view_dtype(self, dtype.to_real())
        return NotImplemented if parts is NotImplemented else torch.view_as_complex(parts.unflatten(-1, (-1, 2)))
    if self.dtype not in HAVE_BITS or dtype not in HAVE_BITS:
        return NotImplemented
    if self.dtype == dtype:
        return self.clone()
    return bit_cast(self, torch.empty(0, dtype=dtype))  # type: ignore[no-any-return]


@torch.library.custom_op("opbridge::bit_cast", mutates_args=())
def bit_cast(x: Tensor, like: Tensor) -> Tensor:
    """The bytes of ``x`` as elements of the type of ``like``."""
    return x.contiguous().view(like.dtype).clone()


@bit_cast.register_fake
def _shape(x: Tensor, like: Tensor) -> Tensor:
    if x.itemsize == like.itemsize:
        return like.new_empty(x.shape)
    return like.new_empty(*x.shape[:-1], x.shape[-1] * x.itemsize // like.itemsize)


@decomposition("opbridge::bit_cast")
@body_for("opbridge::BitCast")
def by_arithmetic(x: Tensor, like: Tensor) -> Tensor:
    """The same by arithmetic, which is exact except that a NaN loses its sign and payload.

    bit_cast(Tensor x, Tensor like) -> Tensor

    ONNX's BitCast (opset 26) does this for types of one width; arithmetic needs no new opset.
    """
    return from_bits(_regrouped(bits_of(x), x.itemsize, like.itemsize), like.dtype)


@kernel_translation("opbridge::bit_cast")
def with_kernel(x: Any, like: Any) -> Any:
    """``bit_cast`` as a custom node with a kernel.

    bit_cast(Tensor x, Tensor like) -> Tensor
    """
    return custom_node("opbridge::BitCast", x, like)


def _regrouped(words: Tensor, before: int, after: int) -> Tensor:
    """Words of ``before`` bytes as words of ``after`` bytes."""
    if before == after:
        return words
    *rows, length = words.shape
    if before > after:
        pieces = [(words >> shift) & (2 ** (8 * after) - 1) for shift in range(0, 8 * before, 8 * after)]
        return torch.stack(pieces, -1).reshape(*rows, length * len(pieces))
    count = after // before
    grouped = words.reshape(*rows, length // count, count)
    parts = [part << (8 * before * place) for place, part in enumerate(grouped.unbind(-1))]
    return functools.reduce(operator.or_, parts)
