"""The matrix exponential: a custom node with a function body."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.element_types import working_type
from opbridge.catalog.formulas.repeat import is_empty, repeat


@translation("aten::linalg_matrix_exp")
def linalg_matrix_exp(self: Any) -> Any:
    """The sum of A^k / k! over all k, for each matrix A (.., n, n).

    linalg_matrix_exp(Tensor self) -> Tensor
    """
    return custom_node("opbridge::MatrixExp", self)


@body_for("opbridge::MatrixExp")
def matrix_exp(a: Tensor) -> Tensor:
    """Scaling and squaring, for each matrix of a batch as often as its 1-norm requires.

    The Taylor polynomial of degree 16 is exact to rounding up to a norm of 0.64 in float64 and 2.2 in float32 (Al-Mohy
    and Higham, "Computing the action of the matrix exponential", SIAM J. Sci. Comput. 33, 2011, table 3.1).
    """
    if is_empty(a):
        return a.clone()
    dtype = a.dtype
    a = a.to(working_type(dtype))
    reach = 0.5 if a.dtype == torch.float64 else 2.0
    norm = a.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    doublings = torch.log2(norm / reach).ceil().clamp(min=0)
    # Infinite elements and NaN are not scaled.
    doublings = torch.where(norm < torch.inf, doublings, 0.0)

    def square(number: Tensor, power: Tensor) -> tuple[Tensor]:
        return (torch.where(number < doublings, power @ power, power),)

    (result,) = repeat(doublings.amax().long(), square, _taylor(a * torch.exp2(-doublings)))
    return result.to(dtype)


def _taylor(a: Tensor) -> Tensor:
    """The first 17 terms, in six products (Paterson and Stockmeyer, SIAM J. Comput. 2, 1973)."""
    squared = a @ a
    powers = (torch.eye(a.shape[-1], dtype=a.dtype), a, squared, squared @ a)
    fourth = squared @ squared
    total = fourth / math.factorial(16)
    for first in (12, 8, 4, 0):
        terms = (power / math.factorial(first + i) for i, power in enumerate(powers))
        total = sum(terms, start=total)
        if first:
            total = fourth @ total
    return total
