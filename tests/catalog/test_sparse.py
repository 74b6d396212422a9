"""Sparse matrices are dense in a captured model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog

WEIGHT = torch.linspace(-1, 1, 48).reshape(6, 8).relu()
MATRIX = {"x": {1: "n"}}


class Weights(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("coo", WEIGHT.to_sparse())
        self.csr = WEIGHT.to_sparse_csr()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.sparse.mm(self.coo, x) + self.csr @ x
        return torch.sparse.addmm(product, self.coo, x, beta=0.5, alpha=2.0)


def adjacency(row: torch.Tensor, column: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    matrix = torch.sparse_coo_tensor(torch.stack([row, column]), torch.ones(row.shape[0]), (n, n)).coalesce()
    return torch.sparse.mm(matrix, x) / (1 + torch.sparse.sum(matrix, 1).to_dense()[:, None])


def rows_of_matrix(bounds: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.sparse_csr_tensor(bounds, columns, values, size=(3, 4)) @ x


def back_and_forth(x: torch.Tensor) -> torch.Tensor:
    return x.to_sparse().coalesce().to_dense() + x.to_sparse_csr().to_dense()


def _edges(*edges: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    row, column = torch.tensor(edges).T
    return row.contiguous(), column.contiguous()


CASES: dict[str, tuple[Any, Any, list[tuple[torch.Tensor, ...]]]] = {
    "weights": (Weights(), MATRIX, [(torch.ones(8, 3),), (torch.randn(8, 5),)]),
    "adjacency": (
        adjacency,
        ({0: "e"}, {0: "e"}, {0: "n"}),
        [(*_edges((0, 1), (1, 2), (0, 1)), torch.randn(4, 3)), (*_edges((4, 0), (2, 2)), torch.randn(5, 3))],
    ),
    "csr": (
        rows_of_matrix,
        (None, {0: "n"}, {0: "n"}, None),
        [
            (torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1]), torch.randn(3), torch.randn(4, 2)),
            (torch.tensor([0, 0, 3, 4]), torch.tensor([0, 1, 2, 0]), torch.randn(4), torch.randn(4, 2)),
        ],
    ),
    "back and forth": (back_and_forth, MATRIX, [(torch.randn(3, 4),), (torch.randn(3, 2),)]),
}


@pytest.mark.parametrize("name", CASES)
def test_sparse_matrices(name: str) -> None:
    model, dynamic_shapes, inputs = CASES[name]
    captured = capture(model, inputs[0], dynamic_shapes=dynamic_shapes, rewrites=Catalog.load().rewrites())
    for args in inputs:
        torch.testing.assert_close(captured.program.module()(*args), model(*args))
