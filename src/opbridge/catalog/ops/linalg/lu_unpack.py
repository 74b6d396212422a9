"""The parts of an LU factorization; the permutation is a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.repeat import repeat
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::LuUnpack", "lu_unpack.h")


@translation("aten::lu_unpack")
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """P, L and U from the result of ``lu_factor``; parts that are not requested are empty tensors.

    lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True)
    -> (Tensor P, Tensor L, Tensor U)
    """
    return custom_node(
        "opbridge::LuUnpack",
        LU_data,
        LU_pivots,
        num_outputs=3,
        unpack_data=unpack_data,
        unpack_pivots=unpack_pivots,
    )


@body_for("opbridge::LuUnpack")
def unpack(lu: Tensor, swaps: Tensor, unpack_data: int, unpack_pivots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Apply the interchanges to the row numbers in order, one per step."""
    m, n = lu.shape[-2:]
    k = smaller(m, n)
    permutation, lower, upper = lu.new_zeros(0), lu.new_zeros(0), lu.new_zeros(0)
    if unpack_data:
        rows, columns = torch.arange(m).unsqueeze(-1), torch.arange(n)
        unit = torch.where(rows == columns[:k], 1.0, 0.0).to(lu.dtype)
        lower = torch.where(rows > columns[:k], lu[..., :, :k], unit)
        upper = torch.where(rows[:k] <= columns, lu[..., :k, :], 0.0)
    if unpack_pivots:
        order = permutation_of(swaps, m)
        permutation = (order.unsqueeze(-2) == torch.arange(m).unsqueeze(-1)).to(lu.dtype)
    return permutation, lower, upper


def smaller(m: Any, n: Any) -> Any:
    """The smaller of two sizes; the sizes of a square matrix stay dynamic, unlike with ``torch.sym_min``."""
    return m if m == n else torch.sym_min(m, n)


def permutation_of(swaps: Tensor, size: int) -> Tensor:
    """The row at each position (.., size) after (.., k) interchanges of the rows of a matrix."""
    places = torch.arange(size)

    def interchange(step: Tensor, order: Tensor) -> tuple[Tensor]:
        other = swaps.index_select(-1, step.reshape(1)).long() - 1
        source = torch.where(places == step, other, torch.where(places == other, step, places))
        return (order.gather(-1, source),)

    (order,) = repeat(swaps.shape[-1], interchange, places.expand(*swaps.shape[:-1], size))
    return order
