"""Comparisons and truth values of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import parts
from opbridge.catalog.complex.rules import complex_rule


def truth(value: Any) -> Any:
    """Whether each element is nonzero."""
    if not isinstance(value, Tensor) or not value.is_complex():
        return value
    real, imaginary = parts(value)
    return (real != 0) | (imaginary != 0)


@complex_rule("aten::eq.Tensor", "aten::eq.Scalar")
def eq(self: Any, other: Any) -> Tensor:
    """Whether both parts are equal."""
    (a, b), (c, d) = parts(self), parts(other)
    return (a == c) & (b == d)


@complex_rule("aten::ne.Tensor", "aten::ne.Scalar")
def ne(self: Any, other: Any) -> Tensor:
    """Whether either part differs."""
    (a, b), (c, d) = parts(self), parts(other)
    return (a != c) | (b != d)


@complex_rule("aten::isnan", "aten::isinf", takes_overload=True)
def either(overload: torch._ops.OpOverload, self: Tensor) -> Tensor:
    """Whether the test is true for either part."""
    real, imaginary = parts(self)
    return overload(real) | overload(imaginary)


@complex_rule("aten::isfinite")
def isfinite(self: Tensor) -> Tensor:
    """Whether both parts are finite."""
    real, imaginary = parts(self)
    return torch.isfinite(real) & torch.isfinite(imaginary)


@complex_rule(
    *("aten::logical_not", "aten::logical_and", "aten::logical_or", "aten::logical_xor", "aten::nonzero"),
    *("aten::any", "aten::any.dim", "aten::any.dims", "aten::all", "aten::all.dim", "aten::all.dims"),
    *("aten::count_nonzero", "aten::count_nonzero.dim_IntList", "aten::nonzero_static", "aten::argwhere"),
    takes_overload=True,
)
def of_truth(overload: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Apply the operator to the truth values of its arguments."""
    compute: Callable[..., Any] = overload
    return compute(*map(truth, args), **kwargs)
