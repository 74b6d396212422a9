"""Memory as numbers of another type."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import Sample, decomposition
from opbridge.catalog.formulas.bits import HAVE_BITS, bits_of, from_bits


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

    BitCast (opset 26) does this for types of one width. Arithmetic needs no new opset, and is exact except that a NaN
    loses its sign and payload.
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
    return from_bits(_regrouped(bits_of(self), self.itemsize, dtype.itemsize), dtype)


def _regrouped(words: Tensor, before: int, after: int) -> Tensor:
    """Words of ``before`` bytes as words of ``after`` bytes."""
    if before > after:
        pieces = [(words >> shift) & (2 ** (8 * after) - 1) for shift in range(0, 8 * before, 8 * after)]
        return torch.stack(pieces, -1).flatten(-2)
    if before < after:
        grouped = words.unflatten(-1, (-1, after // before))
        parts = [part << (8 * before * place) for place, part in enumerate(grouped.unbind(-1))]
        return functools.reduce(operator.or_, parts)
    return words
