"""New complex tensors, and conversions to and from other types."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts, real_type
from opbridge.catalog.complex.questions import truth
from opbridge.catalog.complex.rules import complex_rule


@complex_rule("aten::_to_copy", "prims::convert_element_type", "aten::to.dtype")
def converted(self: Tensor, dtype: torch.dtype | None = None, **unused: Any) -> Tensor:
    """Conversion to another dtype: real dtypes drop the imaginary part, bool tests for nonzero numbers."""
    wanted = dtype or self.dtype
    if wanted == torch.bool:
        return truth(self)
    if not wanted.is_complex:
        return parts(self)[0].to(wanted)
    real, imaginary = (part.to(real_type(wanted)) for part in parts(self))
    return joined(real, imaginary)


@complex_rule("aten::copy")
def copied(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """``src`` with the shape and dtype of ``self``."""
    return src.to(self.dtype).expand(self.shape)


def _type_of(dtype: torch.dtype | None, like: Any) -> torch.dtype:
    if dtype is not None:
        return dtype
    return like.dtype if isinstance(like, Tensor) else torch.complex64


@complex_rule("aten::full")
def full(size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **unused: Any) -> Tensor:
    """A tensor filled with one number."""
    kind = real_type(_type_of(dtype, None))
    return joined(*(torch.full(size, part, dtype=kind) for part in parts(fill_value)))


@complex_rule("aten::full_like")
def full_like(self: Tensor, fill_value: Any, *, dtype: torch.dtype | None = None, **unused: Any) -> Tensor:
    """A tensor filled with one number, with the shape of another tensor."""
    kind = _type_of(dtype, self)
    if not kind.is_complex:
        return torch.full(self.shape, parts(fill_value)[0], dtype=kind)
    return joined(*(torch.full(self.shape, part, dtype=real_type(kind)) for part in parts(fill_value)))


@complex_rule("aten::zeros", "aten::empty.memory_format", "aten::empty_strided", "aten::ones", takes_overload=True)
def constant(
    overload: torch._ops.OpOverload, size: Any, stride: Any = (), *, dtype: torch.dtype | None = None, **unused: Any
) -> Tensor:
    """Zeros or ones; uninitialized tensors are zeros."""
    return torch.full(size, int("ones" in overload.name()), dtype=_type_of(dtype, None))


@complex_rule("aten::new_empty_strided")
def new_empty_strided(
    self: Tensor, size: Any, stride: Any, *, dtype: torch.dtype | None = None, **unused: Any
) -> Tensor:
    """Zeros with the dtype of another tensor."""
    return torch.full(size, 0, dtype=_type_of(dtype, self))


@complex_rule("aten::zeros_like", "aten::empty_like", "aten::ones_like", takes_overload=True)
def constant_like(
    overload: torch._ops.OpOverload, self: Tensor, *, dtype: torch.dtype | None = None, **unused: Any
) -> Tensor:
    """Zeros or ones with the shape of a tensor."""
    return torch.full(self.shape, int("ones" in overload.name()), dtype=_type_of(dtype, self))


@complex_rule("aten::randn", "aten::randn_like", "aten::rand", "aten::rand_like", takes_overload=True)
def drawn(overload: torch._ops.OpOverload, shape: Any, *, dtype: torch.dtype | None = None, **unused: Any) -> Tensor:
    """Random numbers with independent parts; normal numbers have a total variance of 1."""
    kind = real_type(_type_of(dtype, shape))
    size = shape.shape if isinstance(shape, Tensor) else shape
    draw, scale = (torch.randn, math.sqrt(0.5)) if "randn" in overload.name() else (torch.rand, 1.0)
    return joined(*(draw(size, dtype=kind) * scale for _ in range(2)))


@complex_rule("aten::complex", of_real=True)
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """A complex tensor from its parts; for float16, torch's decomposition writes into the parts of a new tensor."""
    if real.dtype != torch.float16:
        return NotImplemented
    return joined(*torch.broadcast_tensors(real, imag))


@complex_rule("aten::polar", of_real=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """A complex tensor from polar coordinates; torch's decomposition writes into the parts of a new tensor."""
    return joined(abs * torch.cos(angle), abs * torch.sin(angle))


@complex_rule("aten::normal_functional")
def normal(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: None = None) -> Tensor:
    """Normal samples around ``mean``, with half the variance per part (aten/native/DistributionTemplates.h)."""
    kind = real_type(self.dtype)
    return joined(*(torch.randn(self.shape, dtype=kind) * (std * math.sqrt(0.5)) + mean for _ in range(2)))


@complex_rule("aten::uniform")
def uniform(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Tensor:
    """Both parts drawn from the uniform distribution on [low, high)."""
    kind = real_type(self.dtype)
    return joined(*(torch.rand(self.shape, dtype=kind) * (high - low) + low for _ in range(2)))
