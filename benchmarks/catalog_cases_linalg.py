"""The cases of linear algebra, for ``catalog.py``: random matrices with so many rows."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["LINALG"]


def _square(side: int) -> Tensor:
    return torch.randn(side, side)


def _one(side: int) -> tuple[Any, ...]:
    return (_square(side),)


def _two(side: int) -> tuple[Any, ...]:
    return _square(side), _square(side)


def _positive(side: int) -> Tensor:
    a = _square(side)
    return a @ a.mT + side * torch.eye(side)


def _symmetric(side: int) -> Tensor:
    a = _square(side)
    return a + a.mT


def _well(side: int) -> Tensor:
    return _square(side) + side * torch.eye(side)


def _batches(side: int) -> tuple[Any, ...]:
    return tuple(torch.randn(8, side, side) for _ in range(3))


def _eight_bits(side: int) -> tuple[Any, ...]:
    return tuple(torch.randint(-128, 128, (side, side), dtype=torch.int8) for _ in range(2))


def _sparse(side: int) -> Tensor:
    """Every eighth element, at random."""
    return _square(side) * (torch.rand(side, side) < 1 / 8)


LINALG = {
    "aten::linalg_cholesky_ex opbridge::Cholesky": (torch.linalg.cholesky, lambda n: (_positive(n),)),
    "aten::cholesky_inverse": (torch.cholesky_inverse, lambda n: (torch.linalg.cholesky(_positive(n)),)),
    "aten::cholesky_solve": (torch.cholesky_solve, lambda n: (_square(n), torch.linalg.cholesky(_positive(n)))),
    "aten::linalg_lu_factor_ex opbridge::LuFactor": (torch.linalg.lu_factor, lambda n: (_well(n),)),
    "aten::lu_unpack opbridge::LuUnpack": (torch.lu_unpack, lambda n: torch.linalg.lu_factor(_well(n))),
    "aten::linalg_lu_solve": (torch.linalg.lu_solve, lambda n: (*torch.linalg.lu_factor(_well(n)), _square(n))),
    "aten::linalg_lu": (torch.linalg.lu, lambda n: (_well(n),)),
    "aten::linalg_inv_ex": (torch.linalg.inv, lambda n: (_well(n),)),
    "aten::_linalg_solve_ex": (torch.linalg.solve, lambda n: (_well(n), _square(n))),
    "aten::_linalg_det": (torch.linalg.det, lambda n: (_well(n) / n,)),
    "aten::_linalg_slogdet": (torch.linalg.slogdet, lambda n: (_well(n),)),
    "aten::linalg_solve_triangular opbridge::SolveTriangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        lambda n: (_well(n).triu(), _square(n)),
    ),
    "aten::triangular_solve": (torch.triangular_solve, lambda n: (_square(n), _well(n).triu())),
    "aten::linalg_ldl_factor_ex opbridge::LdlFactor": (torch.linalg.ldl_factor, lambda n: (_symmetric(n),)),
    "aten::linalg_ldl_solve opbridge::LdlSolve": (
        torch.linalg.ldl_solve,
        lambda n: (*torch.linalg.ldl_factor(_symmetric(n)), _square(n)),
    ),
    "aten::linalg_qr": (torch.linalg.qr, lambda n: _one(n)),
    "aten::geqrf opbridge::Geqrf": (torch.geqrf, _one),
    "aten::linalg_householder_product": (torch.linalg.householder_product, lambda n: torch.geqrf(_square(n))),
    "aten::ormqr opbridge::Ormqr": (torch.ormqr, lambda n: (*torch.geqrf(_square(n)), _square(n))),
    "aten::_linalg_svd opbridge::Svd": (torch.linalg.svd, _one),
    "opbridge::Svdvals aten::linalg_svdvals": (torch.linalg.svdvals, _one),
    "aten::_linalg_eigh opbridge::Eigh": (torch.linalg.eigh, lambda n: (_symmetric(n),)),
    "opbridge::Eigvalsh aten::linalg_eigvalsh": (torch.linalg.eigvalsh, lambda n: (_symmetric(n),)),
    "aten::linalg_eig opbridge::Eig": (torch.linalg.eig, _one),
    "aten::linalg_pinv.atol_rtol_tensor": (torch.linalg.pinv, _one),
    "aten::linalg_matrix_exp opbridge::MatrixExp": (torch.linalg.matrix_exp, lambda n: (_square(n) / n,)),
    "aten::linalg_matrix_sqrth": (torch.ops.aten.linalg_matrix_sqrth, lambda n: (_positive(n),)),
    "aten::linalg_polar": (torch.ops.aten.linalg_polar, _one),
    "torch.linalg.lstsq": (lambda a, b: torch.linalg.lstsq(a, b).solution, lambda n: (_well(n), _square(n))),
    "torch.cdist aten::_euclidean_dist": (torch.cdist, lambda n: (_square(4 * n), _square(4 * n))),
    "aten::_cdist_forward": (lambda a, b: torch.cdist(a, b, p=1.0), _two),
    "aten::addbmm": (torch.addbmm, lambda n: (_square(n), *_batches(n)[:2])),
    "aten::addmm": (torch.addmm, lambda n: (_square(n).double(), _square(n).double(), _square(n).double())),
    "aten::addmv": (torch.addmv, lambda n: (torch.randn(n), _square(n), torch.randn(n))),
    "aten::_int_mm": (torch._int_mm, _eight_bits),
    "aten::_sparse_addmm": (torch.ops.aten._sparse_addmm, lambda n: (_square(n), _sparse(n), _square(n))),
    "aten::baddbmm": (torch.baddbmm, _batches),
    "aten::einsum": (
        lambda a: torch.einsum("ij->i", a),
        lambda n: (torch.randint(0, 100, (4 * n, 4 * n), dtype=torch.int32),),
    ),
    "aten::linalg_vector_norm": (lambda a: torch.linalg.vector_norm(a, math.inf, dim=-1), _one),
    "torch.cov": (torch.cov, _one),
    "torch.Tensor.cov": (lambda a: a.cov(), _one),
    "torch.corrcoef": (torch.corrcoef, _one),
    "torch.Tensor.corrcoef": (lambda a: a.corrcoef(), _one),
}
