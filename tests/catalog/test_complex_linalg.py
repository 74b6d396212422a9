"""Linear algebra of complex matrices: the rules against PyTorch, and through an export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402
from opbridge.catalog.complex.embedded import blocks_of, from_blocks  # noqa: E402
from opbridge.catalog.complex.rules import rules  # noqa: E402
from opbridge.catalog.ops.linalg.lu_factor_pairs import factored_pairs  # noqa: E402

pytestmark = pytest.mark.newest

linalg = torch.linalg


def _matrices(*sizes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(*sizes, dtype=torch.complex128, generator=generator)


SQUARE, TALL, WIDE = _matrices(2, 5, 5), _matrices(2, 5, 3), _matrices(3, 5)
DEFINITE = SQUARE @ SQUARE.mH + torch.eye(5)
DEFICIENT = TALL @ TALL.mH
NOT_DEFINITE = DEFINITE.clone()
NOT_DEFINITE[0, 3, 3] = -1
# The imaginary part of a diagonal and the other triangle are not read.
UNREAD = DEFINITE.tril() + torch.triu(SQUARE, 1) + 7j * torch.eye(5)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _calls(*calls: tuple[Any, ...], **named: Any) -> list[Arguments]:
    return [(call, named) for call in calls]


RULES: dict[str, tuple[Callable[..., Any], list[Arguments]]] = {
    "linalg_cholesky_ex.default": (
        linalg.cholesky_ex,
        [*_calls((DEFINITE,), (UNREAD,), (SQUARE[:, :0, :0],)), *_calls((DEFINITE,), upper=True)],
    ),
    "linalg_solve_triangular.default": (
        linalg.solve_triangular,
        [
            ((SQUARE, TALL if left else TALL.mT), {"upper": upper, "left": left, "unitriangular": unit})
            for upper in (False, True)
            for left in (False, True)
            for unit in (False, True)
        ],
    ),
    "linalg_matrix_exp.default": (linalg.matrix_exp, _calls((SQUARE,))),
    "linalg_svdvals.default": (linalg.svdvals, _calls((TALL,), (WIDE,), (DEFICIENT,))),
    "linalg_eigvalsh.default": (
        linalg.eigvalsh,
        [*_calls((DEFINITE,), (UNREAD,)), *_calls((UNREAD.mT.contiguous(), "U"))],
    ),
    "linalg_pinv.atol_rtol_tensor": (
        linalg.pinv,
        [
            *_calls((TALL,), (WIDE,), (DEFICIENT,)),
            *_calls((DEFICIENT,), hermitian=True),
            *_calls((TALL,), atol=torch.tensor(1.5)),
            *_calls((TALL,), rtol=torch.tensor([0.1, 0.9])),
        ],
    ),
    "_linalg_det.default": (lambda a: torch.ops.aten._linalg_det.default(a)[0], _calls((SQUARE,))),
    "_linalg_slogdet.default": (lambda a: torch.ops.aten._linalg_slogdet.default(a)[:2], _calls((SQUARE,))),
    "lu_unpack.default": (torch.lu_unpack, _calls(linalg.lu_factor(TALL), linalg.lu_factor(WIDE))),
    "linalg_lu_factor_ex.default": (linalg.lu_factor_ex, _calls((SQUARE,), (TALL,))),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_gives_what_pytorch_gives(name: str) -> None:
    function, calls = RULES[name]
    for args, named in calls:
        found, expected = rules()[f"aten::{name}"].function(*args, **named), function(*args, **named)
        results = zip(*((value if isinstance(value, tuple) else (value,)) for value in (found, expected)), strict=False)
        for own, wanted in results:
            torch.testing.assert_close(own, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not hasattr(torch.ops.aten, "linalg_polar"), reason="torch has linalg_polar from 2.14 on")
def test_polar_factors_and_square_roots() -> None:
    unitary, definite = rules()["aten::linalg_polar.default"].function(TALL)
    torch.testing.assert_close(unitary @ definite, TALL)
    torch.testing.assert_close(unitary.mH @ unitary, torch.eye(3, dtype=TALL.dtype).expand(2, 3, 3))
    root = rules()["aten::linalg_matrix_sqrth.default"].function(DEFINITE)
    torch.testing.assert_close(root @ root, DEFINITE)


def test_the_minor_that_is_not_positive_is_counted_in_complex_rows() -> None:
    info = rules()["aten::linalg_cholesky_ex.default"].function(NOT_DEFINITE)[1]
    assert info.tolist() == linalg.cholesky_ex(NOT_DEFINITE)[1].tolist() == [4, 0]


def test_blocks_add_and_multiply_as_the_numbers_do() -> None:
    assert torch.allclose(from_blocks(blocks_of(SQUARE) @ blocks_of(TALL)), SQUARE @ TALL)
    assert blocks_of(WIDE).shape == (6, 10)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_elimination_interchanges_rows_as_lapack_does(scale: float) -> None:
    singular = torch.zeros(3, 3, dtype=torch.complex128)
    singular[0, 1] = scale
    for a in (SQUARE * scale, TALL * scale, WIDE * scale, singular, SQUARE[:, :1, :1]):
        pairs, swaps, info = factored_pairs(torch.view_as_real(a).contiguous())
        expected = linalg.lu_factor_ex(a)
        assert torch.equal(swaps, expected.pivots)
        assert torch.equal(info, expected.info)
        found = torch.view_as_complex(pairs.contiguous())
        torch.testing.assert_close(found / scale, expected.LU / scale, rtol=1e-12, atol=1e-12)


class _Systems(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        definite = a @ a.mH + torch.eye(a.shape[-1])
        return (
            linalg.solve(a, b),
            linalg.det(a),
            linalg.cholesky(definite),
            linalg.svdvals(b),
        )


@pytest.mark.sweep
def test_systems_through_an_export(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch")
    example = (SQUARE.to(torch.complex64), TALL.to(torch.complex64))
    bundle = opbridge.export(
        _Systems(), example, path=tmp_path / "bundle", dynamic_shapes=({0: batch}, {0: batch}), verify=False
    )
    a, b = _matrices(3, 5, 5), _matrices(3, 5, 3)
    feeds = [torch.view_as_real(value.to(torch.complex64)).numpy() for value in (a, b)]
    for found, expected in zip(opbridge.load(bundle.path)(*feeds), _Systems()(a, b), strict=True):
        form = torch.view_as_real(expected) if expected.is_complex() else expected
        np.testing.assert_allclose(found, form.numpy(), 1e-4, 1e-4)
