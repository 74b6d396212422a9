"""Fourier transforms of a given length along dynamic dimensions.

torch pads the input, cuts it off, or does neither, as the sizes of the example need it. A padding that may be negative
is right for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import rewrite

_TO_REAL = ("irfft", "hfft", "irfft2", "hfft2", "irfftn", "hfftn")
"""Transforms of half of a symmetric spectrum: the length is that of the result."""


def _resized(input: Tensor, dims: Sequence[int], lengths: Sequence[Any], to_real: bool) -> Tensor:
    for dim, length in zip(dims, lengths, strict=True):
        if isinstance(length, int) and length == -1:
            continue
        wanted = length // 2 + 1 if to_real and dim == dims[-1] else length
        size = input.shape[dim]
        is_static = isinstance(size, int) and isinstance(wanted, int)
        if not is_static and not statically_known_true(size == wanted):
            after = input.dim() - 1 - dim % input.dim()
            input = torch.nn.functional.pad(input, [*(0, 0) * after, 0, wanted - size])
    return input


def _of_one_dim(name: str) -> Callable[..., Any]:
    @rewrite(f"torch.fft.{name}")
    def transform(
        original: Callable[..., Tensor], input: Tensor, n: Any = None, dim: int = -1, norm: Any = None, **options: Any
    ) -> Any:
        if n is None or options:
            return NotImplemented
        return original(_resized(input, [dim], [n], name in _TO_REAL), n, dim, norm)

    return _described(transform, name, "int? n=None, int dim=-1")


def _of_dims(name: str, default: Sequence[int] | None) -> Callable[..., Any]:
    @rewrite(f"torch.fft.{name}")
    def transform(
        original: Callable[..., Tensor],
        input: Tensor,
        s: Any = None,
        dim: Any = default,
        norm: Any = None,
        **options: Any,
    ) -> Any:
        if s is None or options:
            return NotImplemented
        dims = range(-len(s), 0) if dim is None else [dim] if isinstance(dim, int) else dim
        if len(dims) != len(s):
            return NotImplemented
        return original(_resized(input, dims, s, name in _TO_REAL), s, dim, norm)

    return _described(transform, name, f"int[]? s=None, int[]? dim={default}")


def _described(function: Callable[..., Any], name: str, parameters: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The transform of an input that is padded or cut off to the length first.

    fft_{name}(Tensor input, {parameters}, str? norm=None) -> Tensor
    """
    return function


fft, ifft, rfft, irfft, hfft, ihfft = map(_of_one_dim, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = (
    _of_dims(name, (-2, -1)) for name in ("fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2")
)
fftn, ifftn, rfftn, irfftn, hfftn, ihfftn = (
    _of_dims(name, None) for name in ("fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")
)
