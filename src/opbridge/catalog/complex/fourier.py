"""Fourier transforms: torch.onnx maps those of complex numbers; in float64 where float32 would lose digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.rules import complex_rule
from opbridge.catalog.formulas.fourier import keeps_its_digits


@complex_rule("aten::_fft_c2c", takes_overload=True)
def fft_c2c(
    overload: torch._ops.OpOverload, self: Tensor, dim: Sequence[int], normalization: int, forward: bool
) -> Tensor:
    """The transform of complex numbers along some axes.

    In double precision the inverse is the conjugate of the transform of the conjugate numbers (Duhamel, Piron and
    Etcheto, "On computing the inverse DFT", 1988): ONNX Runtime's own divides by the length as a float32 number.
    """
    if self.dtype == torch.complex128 and not forward:
        return overload(self.conj(), dim, normalization, True).conj()
    if self.dtype != torch.complex64 or keeps_its_digits(self.shape[axis] for axis in dim):
        return NotImplemented
    return overload(self.to(torch.complex128), dim, normalization, forward).to(torch.complex64)


@complex_rule("aten::_fft_c2r", takes_overload=True)
def fft_c2r(
    overload: torch._ops.OpOverload, self: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any
) -> Tensor:
    """The inverse transform to real numbers; in double precision it is computed from the full spectrum."""
    if self.dtype == torch.complex128:
        *others, last = dim
        spectrum = self if not others else torch.ops.aten._fft_c2c(self, others, normalization, False)
        # Its first last_dim_size // 2 + 1 numbers are given. torch cannot bound a slice of all of them but the first.
        mirrored = spectrum.index_select(last, torch.arange((last_dim_size - 1) // 2, 0, -1)).conj()
        whole = torch.cat([spectrum, mirrored], last)
        return torch.ops.aten._fft_c2c(whole.conj(), [last], normalization, True).real
    lengths = [*(self.shape[axis] for axis in dim[:-1]), last_dim_size]
    if self.dtype != torch.complex64 or keeps_its_digits(lengths):
        return NotImplemented
    return overload(self.to(torch.complex128), dim, normalization, last_dim_size).to(torch.float32)


@complex_rule("aten::_fft_r2c", takes_overload=True, of_real=True)
def fft_r2c(
    overload: torch._ops.OpOverload, self: Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> Tensor:
    """The transform of real numbers along some axes."""
    if self.dtype != torch.float32 or keeps_its_digits(self.shape[axis] for axis in dim):
        return NotImplemented
    return overload(self.to(torch.float64), dim, normalization, onesided).to(torch.complex64)
