"""The real Schur form on ONNX Runtime: its sweeps are written in ONNX operators, and PyTorch runs others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402
from opbridge.catalog.formulas.schur import quasi_triangular  # noqa: E402

pytestmark = [pytest.mark.newest, pytest.mark.sweep, pytest.mark.one_worker]

SIZE = 12


class Schur(torch.nn.Module):
    """The part of the eigenvalues' body that is made of sweeps."""

    def forward(self, matrices: Any) -> Any:
        return quasi_triangular(matrices)


def _random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _matrices() -> dict[str, Any]:
    square, identity = _random(SIZE, SIZE), torch.eye(SIZE, dtype=torch.float64)
    companion = identity.roll(1, 0)
    companion[0] = _random(SIZE)
    return {
        "random": square,
        "symmetric": square + square.mT,
        "orthogonal": torch.linalg.qr(square).Q,
        "turn": torch.matrix_exp(square - square.mT),
        "cycle": identity.roll(1, 0),
        "companion": companion,
        "Jordan block": 2 * identity + identity.roll(1, 0).tril(),
        "repeated": torch.block_diag(*[torch.tensor([[1.0, 2.0], [-2.0, 1.0]], dtype=torch.float64)] * (SIZE // 2)),
        "graded": square * torch.logspace(0, -40, SIZE, dtype=torch.float64).unsqueeze(-1),
        "rank 1": torch.ones(SIZE, SIZE, dtype=torch.float64),
        "triangular": square.triu(),
        "two blocks": torch.block_diag(_random(SIZE - 5, SIZE - 5), _random(5, 5)),
        "identity": identity,
        "zero": 0 * identity,
    }


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """For any number of matrices of any size."""
    folder = tmp_path_factory.mktemp("schur") / "bundle"
    sizes = dict.fromkeys(range(3), torch.export.Dim.AUTO)
    bundle = opbridge.export(Schur(), (_random(2, 4, 4),), path=folder, dynamic_shapes=(sizes,), verify=False)
    return opbridge.load(bundle.path)


def _check(matrices: Any, found: Any) -> None:
    triangular, q = map(torch.from_numpy, found)
    tolerance = 10 * matrices.shape[-1] * torch.finfo(matrices.dtype).eps
    below = triangular.diagonal(-1, -2, -1) != 0
    assert (triangular.tril(-2) == 0).all()
    assert not (below[..., 1:] & below[..., :-1]).any()
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    assert torch.linalg.matrix_norm(q @ q.mT - identity).max() < tolerance
    residual = torch.linalg.matrix_norm(q @ triangular @ q.mT - matrices)
    assert (residual <= tolerance * torch.linalg.matrix_norm(matrices)).all()


@pytest.mark.sweep
def test_matrices_of_all_kinds_in_one_batch(session: Any) -> None:
    matrices = torch.stack(list(_matrices().values()))
    _check(matrices, session(matrices.numpy()))


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_any_size(session: Any, size: int) -> None:
    matrices = _random(3, size, size)
    _check(matrices, session(matrices.numpy()))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_it_ends_where_a_number_is_not_finite(session: Any, value: float) -> None:
    matrices = _random(2, 40, 40)
    matrices[0, 3, 5] = value
    triangular, q = session(matrices.numpy())
    assert np.isnan(triangular[0]).any()
    _check(matrices[1:], (triangular[1:], q[1:]))
