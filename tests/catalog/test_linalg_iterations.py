"""The iterations of linear algebra, run in PyTorch: sizes, shapes and matrices that samples of the database lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from linalg_kernels import kernel, needs_compiler, run  # noqa: E402

from opbridge.catalog.formulas.householder import factored, reflected  # noqa: E402
from opbridge.catalog.ops.linalg.eigh import eigh, eigvalsh  # noqa: E402
from opbridge.catalog.ops.linalg.linalg_eig import eig  # noqa: E402
from opbridge.catalog.ops.linalg.svd import svd, svdvals  # noqa: E402
from opbridge.errors import EngineError  # noqa: E402

pytestmark = pytest.mark.newest

DTYPES = (torch.float32, torch.float64)
FORMS = ("body", pytest.param("kernel", marks=needs_compiler))


def _in_form(form: str, body: Callable[..., Any], *attributes: str) -> Callable[..., Any]:
    """The body itself, or the kernel, which takes what follows the matrices by name."""
    if form == "body":
        return body

    def by_kernel(a: Any, *values: Any) -> Any:
        found = run(kernel(body.__name__), a, **dict(zip(attributes, values, strict=True)))
        return found if len(found) > 1 else found[0]

    return by_kernel


@pytest.fixture(autouse=True)
def plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.while_loop`` as Python's loop, with what it asks of carried values: new tensors, laid out as before."""

    def loop(unfinished: Callable[..., Any], step: Callable[..., Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
        while unfinished(*values):
            following = step(*values)
            for before, after in zip(values, following, strict=True):
                assert before is not after
                assert (before.shape, before.dtype, before.stride()) == (after.shape, after.dtype, after.stride())
            values = following
        return values

    monkeypatch.setattr(torch, "while_loop", loop)


def _random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def _hilbert(size: int) -> Any:
    places = torch.arange(size, dtype=torch.float64)
    return 1 / (places + places.unsqueeze(-1) + 1)


MATRICES = {
    "one": _random(1, 1),
    "square": _random(3, 7, 7),
    "tall": _random(2, 9, 4),
    "wide": _random(4, 9),
    "many axes": _random(2, 1, 3, 5),
    "rank 3": _random(12, 3) @ _random(3, 8),
    "equal columns": torch.ones(6, 5, dtype=torch.float64),
    "zero": torch.zeros(4, 3, dtype=torch.float64),
    "identity": torch.eye(6, dtype=torch.float64),
    "Hilbert": _hilbert(16),
    "graded": _random(8, 8) * torch.logspace(0, -30, 8, dtype=torch.float64),
    "large": _random(5, 5) * 1e37,
    "small": _random(5, 5) * 1e-37,
    "no rows": torch.zeros(0, 3, dtype=torch.float64),
    "no columns": torch.zeros(2, 3, 0, dtype=torch.float64),
    "no matrices": torch.zeros(0, 3, 3, dtype=torch.float64),
}
CASES = [pytest.param(matrix.to(dtype), id=f"{name} {dtype}") for name, matrix in MATRICES.items() for dtype in DTYPES]


def _close(found: Any, expected: Any, size: float = 1.0) -> None:
    """Within some roundings of ``size``, in float64."""
    assert found.shape == expected.shape
    tolerance = 30 * torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double() / size, expected.double() / size, rtol=tolerance, atol=tolerance)


def _size(a: Any) -> float:
    return float(a.double().abs().max()) * max(a.shape) or 1.0 if a.numel() else 1.0


def _orthonormal(columns: Any) -> None:
    _close(columns.mT @ columns, torch.eye(columns.shape[-1], dtype=columns.dtype).expand(*columns.shape[:-2], -1, -1))


@pytest.mark.parametrize("a", CASES)
def test_reflections_are_those_of_lapack(a: Any) -> None:
    factors, taus = factored(a)
    _orthonormal(reflected(factors, taus, torch.eye(a.shape[-2], dtype=a.dtype).expand(*a.shape[:-2], -1, -1)))
    _close(reflected(factors, taus, factors.triu()), a, _size(a))
    _close(reflected(factors, taus, a, backwards=True), factors.triu(), _size(a))
    expected, expected_taus = torch.geqrf(a)
    if torch.linalg.matrix_rank(a.double()).eq(min(a.shape[-2:])).all():
        _close(factors.triu(), expected.triu(), _size(a))
        assert taus.shape == expected_taus.shape


def test_a_tiny_element_is_annihilated_as_in_lapack() -> None:
    column = torch.tensor([[3.0], [1e-30]])
    factors, taus = factored(column)
    expected, expected_taus = torch.geqrf(column)
    torch.testing.assert_close((factors, taus), (expected, expected_taus))
    assert factors[0, 0] == -3


BLOCKS = [
    pytest.param(_random(*sizes).to(dtype), id=f"{sizes} {dtype}")
    for sizes in ((100, 33), (33, 100), (3, 70, 64), (2, 2, 64, 70))
    for dtype in DTYPES
]
"""Matrices of which the kernels take several blocks of columns."""


@pytest.mark.quick("square torch.float64", every=0)
@needs_compiler
@pytest.mark.parametrize("a", [*CASES, *BLOCKS])
def test_kernels_of_reflections(a: Any) -> None:
    factors, taus = run(kernel("geqrf"), a)
    expected, expected_taus = torch.geqrf(a)
    size, steps = _size(a), min(a.shape[-2:])
    q = torch.linalg.householder_product(factors[..., :steps].double(), taus.double())
    _orthonormal(q.to(a.dtype))
    _close((q @ factors.double()[..., :steps, :].triu()).to(a.dtype), a, size)
    if a.numel() and torch.linalg.cond(a.double()).lt(1e3).all():
        _close(factors, expected, size)
        _close(taus, expected_taus)
    if not a.numel():
        return
    for others in (a, a.mT.contiguous()):
        for left, transpose in ((1, 0), (1, 1), (0, 0), (0, 1)):
            if others.shape[-2 if left else -1] != a.shape[-2]:
                continue
            (product,) = run(kernel("ormqr"), expected, expected_taus, others, left=left, transpose=transpose)
            wanted = torch.ormqr(
                expected.double(), expected_taus.double(), others.double(), bool(left), bool(transpose)
            )
            _close(product, wanted.to(a.dtype), size)


@pytest.mark.quick("body", every=0)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("a", CASES)
def test_singular_values_and_vectors(a: Any, is_full: bool, form: str) -> None:
    svd_of = _in_form(form, svd, "full_matrices", "is_wide")
    left, values, right = svd_of(a, is_full, a.shape[-2] < a.shape[-1])
    expected = torch.linalg.svd(a, full_matrices=is_full)
    assert [part.shape for part in (left, values, right)] == [part.shape for part in expected]
    exact = torch.linalg.svdvals(a.double())
    _close(values, exact, _size(a))
    _close(_in_form(form, svdvals, "is_wide")(a, a.shape[-2] < a.shape[-1]), exact, _size(a))
    _orthonormal(left)
    _orthonormal(right.mT)
    count = values.shape[-1]
    _close((left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :], a, _size(a))


@pytest.mark.quick("body", every=8)
@pytest.mark.parametrize("form", FORMS)
def test_wide_matrices_of_unknown_sizes(form: str) -> None:
    """Where sizes are symbolic, the shorter side is not known; the result is right either way."""
    a = _random(2, 3, 8)
    left, values, right = _in_form(form, svd, "full_matrices", "is_wide")(a, False, False)
    _close((left * values.unsqueeze(-2)) @ right, a)
    _close(values, torch.linalg.svdvals(a))


@pytest.mark.quick("body", every=0)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("a", [case for case in CASES if case.values[0].shape[-1] == case.values[0].shape[-2]])
def test_symmetric_eigenvalues_and_vectors(a: Any, upper: bool, form: str) -> None:
    values, vectors = _in_form(form, eigh, "upper")(a, upper)
    symmetric = a.triu() + a.triu(1).mT if upper else a.tril() + a.tril(-1).mT
    exact = torch.linalg.eigvalsh(symmetric.double())
    _close(values, exact, _size(a))
    _close(_in_form(form, eigvalsh, "upper")(a, upper), exact, _size(a))
    _orthonormal(vectors)
    _close((vectors * values.unsqueeze(-2)) @ vectors.mT, symmetric, _size(a))


SQUARE = {
    **{name: matrix for name, matrix in MATRICES.items() if matrix.shape[-1] == matrix.shape[-2]},
    "symmetric": _random(6, 6) + _random(6, 6).mT,
    "turn": torch.matrix_exp(_random(6, 6) - _random(6, 6).mT),
    "cycle": torch.eye(7, dtype=torch.float64).roll(1, 0),
    "defective": torch.eye(9, dtype=torch.float64) + torch.diag(torch.ones(8, dtype=torch.float64), 1),
    "triangular": _random(6, 6).triu(),
    "two blocks": torch.block_diag(_random(3, 3), _random(2, 2)),
    "tiny block": torch.block_diag(torch.ones(1, 1, dtype=torch.float64), _random(4, 4) * 1e-30),
}


@pytest.mark.quick("body", every=0)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SQUARE)
def test_eigenvalues_and_vectors(name: str, dtype: Any, form: str) -> None:
    _check_eigenvalues(SQUARE[name].to(dtype), form)


def _check_eigenvalues(a: Any, form: str) -> None:
    values, vectors = (torch.complex(*pairs.unbind(-1)) for pairs in _in_form(form, eig)(a))
    expected = torch.linalg.eig(a)
    assert (values.shape, vectors.shape) == (expected.eigenvalues.shape, expected.eigenvectors.shape)
    product = torch.complex(a / _size(a), torch.zeros_like(a)) @ vectors
    residual = product - vectors * (values / _size(a)).unsqueeze(-2)
    _close(residual.abs(), torch.zeros_like(residual.real))
    _close(torch.linalg.vector_norm(vectors, dim=-2), torch.ones_like(values.real))
    _close(values.sum(-1).real, a.double().diagonal(dim1=-2, dim2=-1).sum(-1), _size(a))


@pytest.mark.quick("body", every=8)
@pytest.mark.parametrize("form", FORMS)
def test_real_eigenvalues_have_no_imaginary_part(form: str) -> None:
    eig_of = _in_form(form, eig)
    values, _ = eig_of(_random(6, 6).triu())
    assert (values[..., 1] == 0).all()
    turned, _ = eig_of(torch.eye(3, dtype=torch.float64).roll(1, 0))
    assert (turned[..., 1] == 0).sum() == 1
    assert float(turned[..., 1].sum()) == 0


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_on_larger_matrices(dtype: Any) -> None:
    """Their rotations wait in a list that these fill, and go through a few columns at a time."""
    for a in (_random(150, 110).to(dtype), _random(2, 110, 150).to(dtype)):
        test_singular_values_and_vectors(a, True, "kernel")
    square = _random(130, 130).to(dtype)
    test_symmetric_eigenvalues_and_vectors(square, True, "kernel")
    _check_eigenvalues(square, "kernel")
    _check_eigenvalues(torch.eye(100, dtype=dtype).roll(1, 0), "kernel")


KERNELS = {
    "eigh": {"upper": 0},
    "eigvalsh": {"upper": 1},
    "svd": {"full_matrices": 1, "is_wide": 0},
    "svdvals": {"is_wide": 0},
    "eig": {},
}


@pytest.mark.quick("eigh-nan")
@needs_compiler
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_give_nan_for_a_matrix_that_is_not_finite_and_end(name: str, number: float) -> None:
    a = _random(2, 5, 5)
    a[0, 3, 3] = number
    for found, whole in zip(*(run(kernel(name), each, **KERNELS[name]) for each in (a, a[1:])), strict=True):
        assert found[0].isnan().all()
        assert torch.equal(found[1], whole[0])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_check_sizes(name: str) -> None:
    sizes = (5,) if name.startswith("svd") else (2, 3)
    with pytest.raises(EngineError, match=r"expected (square )?matrices, got sizes"):
        run(kernel(name), _random(*sizes), **KERNELS[name])
