"""Sparse matrices, which are dense in a captured model: ONNX has no operators for other layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite


@decomposition("aten::_sparse_addmm")
def sparse_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta self + alpha mat1 @ mat2``.

    _sparse_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    """
    return torch.addmm(self, mat1, mat2, beta=beta, alpha=alpha)


@rewrite("torch.sparse.addmm")
def addmm(
    original: Callable[..., Tensor], mat: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """``beta mat + alpha mat1 @ mat2``."""
    return torch.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


@rewrite("torch.sparse.mm")
def mm(original: Callable[..., Tensor], mat1: Tensor, mat2: Tensor, *reduce: str) -> Tensor:
    """The product of two matrices. A product with another reduction than the sum is not rewritten."""
    return NotImplemented if reduce and reduce[0] != "sum" else torch.mm(mat1, mat2)


@rewrite("torch.sparse.sum")
def sum_of_values(
    original: Callable[..., Tensor], input: Tensor, dim: Any = None, dtype: torch.dtype | None = None
) -> Tensor:
    """The sum of the values, of all or along dimensions."""
    return input.sum(dtype=dtype) if dim is None else input.sum(dim, dtype=dtype)


@rewrite("torch.sparse_coo_tensor")
def sparse_coo_tensor(
    original: Callable[..., Tensor],
    indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Tensor:
    """A dense tensor with these values; values at the same position are added.

    Args:
        original: torch's function; it is called if the size is not given, because it then depends on the indices.
        indices: The positions: int64, shape (sparse dimensions, n).
        values: The values: shape (n, *dense dimensions).
        size: The shape of the result.
        dtype: The dtype of the result; by default that of the values.
        options: What does not change the values.
    """
    if size is None:
        return NotImplemented
    values = torch.as_tensor(values, dtype=dtype)
    positions = torch.as_tensor(indices, device=values.device).unbind(0)
    return torch.zeros(tuple(size), dtype=values.dtype, device=values.device).index_put(positions, values, True)


@rewrite("torch.sparse_csr_tensor")
def sparse_csr_tensor(
    original: Callable[..., Tensor],
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    **options: Any,
) -> Tensor:
    """A dense matrix with these values.

    Args:
        original: torch's function; it is called for batches, and if the size is not given.
        crow_indices: For each row, how many values the rows above it have: shape (rows + 1,).
        col_indices: The columns of the values: shape (n,).
        values: The values: shape (n,).
        size: The shape of the result, (rows, columns).
        options: As for :func:`sparse_coo_tensor`.
    """
    if size is None or len(size) != 2:
        return NotImplemented
    bounds, columns = torch.as_tensor(crow_indices), torch.as_tensor(col_indices)
    # A value belongs to the row whose predecessors have as many values as stand before it, or fewer.
    rows = torch.searchsorted(bounds[1:], torch.arange(columns.shape[0], dtype=bounds.dtype), right=True)
    return sparse_coo_tensor(original, torch.stack([rows, columns.to(rows.dtype)]), values, size, **options)


@rewrite("torch.Tensor.coalesce")
def coalesce(original: Callable[..., Tensor], self: Tensor) -> Tensor:
    """The tensor itself."""
    return self if self.layout == torch.strided else NotImplemented


@rewrite("torch.Tensor.to_sparse")
def to_sparse(original: Callable[..., Tensor], self: Tensor, *layout: Any, **options: Any) -> Tensor:
    """The tensor itself."""
    return self


@rewrite("torch.Tensor.to_sparse_csr")
def to_sparse_csr(original: Callable[..., Tensor], self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The tensor itself."""
    return self
