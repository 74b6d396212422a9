"""Fourier transforms: products with sines and cosines, or ONNX DFT, in float64 where float32 would lose digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined
from opbridge.catalog.complex.rules import complex_rule
from opbridge.catalog.formulas.fourier import LONGEST_PRODUCT, SHORT, keeps_its_digits


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
    if self.dtype == torch.complex64 and _are_short(self, dim, self.shape[dim[-1]]):
        return joined(*_products(self.real, self.imag, dim, normalization, forward))
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
    if self.dtype == torch.complex64 and _is_product(self, dim, last_dim_size):
        *others, last = dim
        real, imaginary = _products(self.real, self.imag, others, normalization, forward=False)
        return _real_product(real, imaginary, last, last_dim_size, normalization)
    lengths = [*(self.shape[axis] for axis in dim[:-1]), last_dim_size]
    if self.dtype != torch.complex64 or keeps_its_digits(lengths):
        return NotImplemented
    return overload(self.to(torch.complex128), dim, normalization, last_dim_size).to(torch.float32)


@complex_rule("aten::_fft_r2c", takes_overload=True, of_real=True)
def fft_r2c(
    overload: torch._ops.OpOverload, self: Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> Tensor:
    """The transform of real numbers along some axes."""
    if self.dtype == torch.float32 and _is_product(self, dim, self.shape[dim[-1]]):
        *others, last = dim
        real, imaginary = _complex_product(self, last, onesided, normalization)
        return joined(*_products(real, imaginary, others, normalization, forward=True))
    if self.dtype != torch.float32 or keeps_its_digits(self.shape[axis] for axis in dim):
        return NotImplemented
    return overload(self.to(torch.float64), dim, normalization, onesided).to(torch.complex64)


def _is_product(self: Tensor, dim: Sequence[int], length: Any) -> bool:
    """Whether a transform is written as products with sines and cosines, which are rounded from float64.

    They have as many digits as PyTorch's transform, and no number in float64, which some engines do not have.

    Args:
        self: What is transformed.
        dim: The axes.
        length: The length of the transform along the last of them.
    """
    if _are_short(self, dim, length):
        return True
    known = isinstance(length, int) and isinstance(self.shape[dim[-1]], int)
    return known and len(dim) == 1 and length <= LONGEST_PRODUCT and not keeps_its_digits([length])


def _are_short(self: Tensor, dim: Sequence[int], length: Any) -> bool:
    """Whether all lengths are so short that products take less time than transforms."""
    lengths = [length, *(self.shape[axis] for axis in dim)]
    return all(isinstance(number, int) and 0 < number <= SHORT for number in lengths)


def _products(
    real: Tensor, imaginary: Tensor, dim: Sequence[int], normalization: int, forward: bool
) -> tuple[Tensor, Tensor]:
    """The transform of complex numbers along some axes."""
    for axis in dim:
        length = real.shape[axis]
        angles = _angles(np.arange(length), length)
        cosines, sines = (_scale(length, normalization) * wave(angles) for wave in (np.cos, np.sin))
        sines = -sines if forward else sines
        (cosine_real, sine_real), (cosine_imaginary, sine_imaginary) = (
            (_along(axis, part, cosines), _along(axis, part, sines)) for part in (real, imaginary)
        )
        real, imaginary = cosine_real - sine_imaginary, sine_real + cosine_imaginary
    return real, imaginary


def _real_product(real: Tensor, imaginary: Tensor, dim: int, length: int, normalization: int) -> Tensor:
    """The inverse transform of the first half of a spectrum; its other half is the conjugate of the first."""
    bins = np.arange(length // 2 + 1)
    both = np.where((bins == 0) | (2 * bins == length), 1, 2)[:, None] * _scale(length, normalization)
    waves = np.concatenate([both * np.cos(_angles(bins, length)), -both * np.sin(_angles(bins, length))])
    return _along(dim, torch.cat([real, imaginary], dim), waves)


def _complex_product(self: Tensor, dim: int, onesided: bool, normalization: int) -> tuple[Tensor, Tensor]:
    """The transform of real numbers, or its first half."""
    length = self.shape[dim]
    bins = np.arange(length // 2 + 1 if onesided else length)
    waves = _scale(length, normalization) * np.exp(-1j * _angles(bins, length).T)
    return _along(dim, self, waves.real), _along(dim, self, waves.imag)


def _along(dim: int, x: Tensor, waves: np.ndarray) -> Tensor:
    """The product along one axis with a matrix whose rows belong to the elements."""
    matrix = torch.as_tensor(waves.astype(np.float32))
    axis = dim % x.dim()
    if axis == x.dim() - 1:
        return x @ matrix
    if axis == x.dim() - 2:
        return matrix.mT.contiguous() @ x
    return (x.movedim(axis, -1) @ matrix).movedim(-1, axis)


def _angles(bins: np.ndarray, length: int) -> np.ndarray:
    return 2 * np.pi * (np.outer(bins, np.arange(length)) % length) / length


def _scale(length: int, normalization: int) -> float:
    """The factor of a normalization: none, by the square root of the length, by the length."""
    return float((1.0, length**-0.5, 1 / length)[normalization])
