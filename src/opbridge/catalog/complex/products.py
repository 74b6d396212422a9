"""Operators that are linear in each of two arguments: products of matrices, convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts
from opbridge.catalog.complex.rules import complex_rule


@complex_rule("aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::matmul", takes_overload=True)
def matrix_product(overload: torch._ops.OpOverload, self: Tensor, other: Tensor) -> Tensor:
    """The product, from the four products of the parts."""
    (a, b), (c, d) = parts(self), parts(other)
    return joined(overload(a, c) - overload(b, d), overload(a, d) + overload(b, c))


@complex_rule("aten::vdot")
def vdot(self: Tensor, other: Tensor) -> Tensor:
    """The product of the first vector's conjugate with the second."""
    return torch.dot(torch.conj_physical(self), other)


@complex_rule("aten::convolution")
def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    """The convolution, from the four convolutions of the parts."""
    (a, b), (c, d) = parts(input), parts(weight)
    first, second = (None, None) if bias is None else parts(bias)
    convolve = torch.ops.aten.convolution.default
    real = convolve(a, c, first, *settings) - convolve(b, d, None, *settings)
    return joined(real, convolve(a, d, second, *settings) + convolve(b, c, None, *settings))


@complex_rule("aten::addmm", "aten::addmv", "aten::baddbmm", takes_overload=True)
def added_product(
    overload: torch._ops.OpOverload, self: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """The sum of alpha times the product and beta times ``self``, which is not read if beta is 0."""
    result = (first @ second) * alpha
    return result.expand(torch.broadcast_shapes(self.shape, result.shape)) if beta == 0 else self * beta + result


@complex_rule("aten::addbmm")
def added_sum(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The sum of alpha times a batch of products and beta times ``self``."""
    result = (batch1 @ batch2).sum(0) * alpha
    return result if beta == 0 else self * beta + result


@complex_rule("aten::addr")
def added_outer(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The sum of alpha times the outer product and beta times ``self``."""
    result = vec1.unsqueeze(1) * vec2 * alpha
    return result if beta == 0 else self * beta + result
