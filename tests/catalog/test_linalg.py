"""Linear algebra: the function bodies and the kernels of the factorizations, and what is made of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from linalg_kernels import kernel, needs_compiler, run  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.formulas import householder  # noqa: E402
from opbridge.catalog.formulas.repeat import repeat  # noqa: E402
from opbridge.catalog.ops.linalg import (  # noqa: E402
    cholesky,
    cholesky_solve,
    ldl_factor,
    ldl_solve,
    lu_factor,
    lu_solve,
    lu_unpack,
    matrix_exp,
    solve_triangular,
)
from opbridge.errors import EngineError, TranslationError  # noqa: E402

pytestmark = pytest.mark.newest

BATCHES = ((), (2,), (2, 3), (0,))
SIZES = (0, 1, 2, 5, 50)


@pytest.fixture
def eager_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """In eager mode torch.while_loop compiles its functions, for some seconds each."""

    def loop(condition: Callable[..., Any], body: Callable[..., Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
        while condition(*values):
            values = body(*values)
        return values

    monkeypatch.setattr(torch, "while_loop", loop)


def random(*sizes: int, dtype: Any = torch.float64, seed: int = 0) -> Any:
    return torch.randn(sizes, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def definite(matrix: Any) -> Any:
    return matrix @ matrix.mT + matrix.shape[-1] * torch.eye(matrix.shape[-1], dtype=matrix.dtype)


def assert_same(found: Any, expected: Any) -> None:
    """Equal to rounding, in units of the largest element."""
    found, expected = (value if isinstance(value, (tuple, list)) else (value,) for value in (found, expected))
    for mine, theirs in zip(found, expected, strict=True):
        size = 1 + (theirs.abs().max().item() if theirs.numel() else 0)
        tolerance = {torch.float32: 1e-4, torch.float64: 1e-11}.get(theirs.dtype, 0) * size
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)


def squares(dtype: Any = torch.float64) -> Iterator[Any]:
    for batch, size in itertools.product(BATCHES, SIZES):
        yield random(*batch, size, size, dtype=dtype)


def rectangles(dtype: Any = torch.float64) -> Iterator[Any]:
    for batch, (m, n) in itertools.product(BATCHES, [(0, 3), (3, 0), (4, 4), (3, 7), (40, 33), (33, 40)]):
        yield random(*batch, m, n, dtype=dtype)


def systems(dtype: Any = torch.float64) -> Iterator[tuple[Any, Any, dict[str, bool]]]:
    """A triangular matrix, a right side, and on which side of the unknown the matrix stands."""
    for matrix, upper, left, unit in itertools.product(squares(dtype), *[(False, True)] * 3):
        size = matrix.shape[-1]
        # Without this the solutions of unit triangular systems grow like 2^n.
        tamed = matrix / (4 * size or 1) + torch.eye(size, dtype=dtype)
        sizes = (size, 3) if left else (3, size)
        right = random(*matrix.shape[:-2], *sizes, dtype=dtype, seed=1)
        yield tamed, right, {"upper": upper, "left": left, "unitriangular": unit}


@pytest.mark.usefixtures("eager_loops")
class TestBodies:
    """Each function body, against PyTorch's operator."""

    def test_cholesky(self) -> None:
        for matrix, upper in itertools.product(map(definite, squares()), (False, True)):
            assert_same(cholesky.cholesky(matrix, upper), torch.linalg.cholesky_ex(matrix, upper=upper))

    def test_cholesky_says_which_minor_is_not_positive(self) -> None:
        matrix = torch.diag_embed(torch.tensor([[1.0, 4.0, 9.0], [1.0, -1.0, 2.0], [0.0, 1.0, 1.0]]))
        factor, info = cholesky.cholesky(matrix, False)
        assert info.tolist() == torch.linalg.cholesky_ex(matrix).info.tolist() == [0, 2, 1]
        assert factor[0].diagonal().tolist() == [1, 2, 3]
        assert factor[1, 1:, 1:].isnan().any()

    @pytest.mark.slow
    def test_solve_triangular(self) -> None:
        for matrix, right, options in systems():
            found = solve_triangular.solve_triangular(matrix, right, *options.values())
            assert_same(found, torch.linalg.solve_triangular(matrix, right, **options))

    def test_solve_triangular_does_not_read_the_other_triangle(self) -> None:
        matrix = random(4, 4).tril() + torch.full((4, 4), torch.nan).triu(1)
        assert not solve_triangular.solve_triangular(matrix, random(4, 2), False, True, False).isnan().any()

    def test_lu_factor_and_lu_unpack(self) -> None:
        for matrix in rectangles():
            expected = torch.linalg.lu_factor_ex(matrix)
            assert_same(lu_factor.lu_factor(matrix), expected)
            for wanted in itertools.product((True, False), repeat=2):
                assert_same(lu_unpack.unpack(*expected[:2], *wanted), torch.lu_unpack(*expected[:2], *wanted))

    def test_lu_factor_of_singular_matrices(self) -> None:
        matrix = torch.stack([torch.zeros(3, 3), torch.ones(3, 3), torch.eye(3)]).double()
        assert_same(lu_factor.lu_factor(matrix), torch.linalg.lu_factor_ex(matrix))

    def test_matrix_exp(self) -> None:
        for matrix, scale in itertools.product(squares(), (1e-3, 1.0, 10.0)):
            if matrix.shape[-1] < 50:
                assert_same(matrix_exp.matrix_exp(scale * matrix), torch.linalg.matrix_exp(scale * matrix))

    def test_matrix_exp_scales_each_matrix_of_a_batch_by_itself(self) -> None:
        matrix = torch.diag_embed(torch.tensor([[-200.0, 1.0], [1e-5, -1e-5], [0.0, torch.inf]]).double())
        result = matrix_exp.matrix_exp(matrix)
        torch.testing.assert_close(result[:2], torch.diag_embed(matrix[:2].diagonal(dim1=1, dim2=2).exp()))
        assert result[2].isnan().any()

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["random", "zero diagonal", "zero"])
    def test_ldl(self, kind: str) -> None:
        for matrix in squares():
            symmetric = matrix + matrix.mT
            if kind != "random":
                symmetric = symmetric * (1 - torch.eye(matrix.shape[-1])) * (kind != "zero")
            expected = torch.linalg.ldl_factor_ex(symmetric)
            assert_same(ldl_factor.ldl_factor(symmetric), expected)
            if kind == "random":
                right = random(matrix.shape[-1], 3)
                solved = ldl_solve.ldl_solve(*expected[:2], right)
                assert_same(solved, torch.linalg.ldl_solve(*expected[:2], right.expand(solved.shape)))


class TestDecompositions:
    """What is made of the factorizations, against PyTorch's operator."""

    def test_lu_solve(self) -> None:
        for matrix, left, adjoint in itertools.product(squares(), (True, False), (True, False)):
            factors = torch.linalg.lu_factor(matrix)
            right = random(*matrix.shape[:-2], *((matrix.shape[-1], 2) if left else (2, matrix.shape[-1])), seed=1)
            options = {"left": left, "adjoint": adjoint}
            expected = torch.linalg.lu_solve(*factors, right, **options)
            assert_same(lu_solve.linalg_lu_solve(*factors, right, **options), expected)

    def test_solve_takes_vectors_as_pytorch_does(self) -> None:
        for sizes in [(3,), (2, 3), (2, 3, 4), (3, 4)]:
            matrix, right = random(2, 3, 3), random(*sizes)
            if torch.Size(sizes) in ((3,), (3, 4)):
                matrix = matrix[0]
            solved = lu_solve.linalg_solve_ex(matrix, right)
            assert_same(solved[0], torch.linalg.solve(matrix, right))

    def test_inv_and_slogdet(self) -> None:
        for matrix in squares():
            assert_same(lu_solve.linalg_inv_ex(matrix), torch.linalg.inv_ex(matrix))
            assert_same(lu_solve.linalg_slogdet(matrix)[:2], tuple(torch.linalg.slogdet(matrix)))

    def test_slogdet_of_singular_matrices_and_nan(self) -> None:
        matrix = torch.stack([torch.ones(2, 2), torch.full((2, 2), torch.nan)]).double()
        sign, logarithm, *_ = lu_solve.linalg_slogdet(matrix)
        assert (sign[0].item(), logarithm[0].item()) == (0, -torch.inf)
        assert sign[1].isnan()

    def test_from_a_cholesky_factor(self) -> None:
        for matrix, upper in itertools.product(map(definite, squares()), (False, True)):
            factor, right = torch.linalg.cholesky(matrix, upper=upper), random(*matrix.shape[:-1], 2)
            expected = torch.cholesky_solve(right, factor, upper)
            assert_same(cholesky_solve.cholesky_solve(right, factor, upper), expected)
            expected = torch.cholesky_inverse(factor, upper)
            assert_same(cholesky_solve.cholesky_inverse(factor, upper), expected)

    def test_triangular_solve(self) -> None:
        right = random(2, 3, 4)
        matrix = random(3, 3) + 3 * torch.eye(3)
        for options in itertools.product((True, False), repeat=3):
            solution, coefficient = solve_triangular.triangular_solve(right, matrix, *options)
            expected = torch.triangular_solve(right, matrix, *options)
            assert_same((solution, coefficient), tuple(expected))


@needs_compiler
@pytest.mark.quick("float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
class TestKernels:
    """Each kernel, against PyTorch's operator; matrices of more than one block among them."""

    def test_cholesky(self, dtype: Any) -> None:
        library = kernel("cholesky")
        for matrix, upper in itertools.product(map(definite, squares(dtype)), (False, True)):
            expected = torch.linalg.cholesky_ex(matrix, upper=upper)
            assert_same(run(library, matrix, upper=upper), tuple(expected))
        matrix = torch.diag_embed(torch.tensor([1.0, -1.0, 2.0], dtype=dtype))
        factor, info = run(library, matrix, upper=False)
        assert info.item() == 2
        assert factor[1, 1].isnan()

    def test_solve_triangular(self, dtype: Any) -> None:
        library = kernel("solve_triangular")
        for matrix, right, options in systems(dtype):
            (found,) = run(library, matrix, right, **options)
            assert_same(found, torch.linalg.solve_triangular(matrix, right, **options))
        matrix, right = definite(random(3, 1, 4, 4, dtype=dtype)), random(2, 4, 5, dtype=dtype)
        (found,) = run(library, matrix, right, upper=1, left=1, unitriangular=0)
        assert_same(found, torch.linalg.solve_triangular(matrix, right, upper=True))
        with pytest.raises(EngineError, match=r"sizes \(3, 1, 4, 4\) and \(5, 5\) do not fit"):
            run(library, matrix, random(5, 5, dtype=dtype), upper=1, left=1, unitriangular=0)

    @pytest.mark.slow
    def test_lu_factor(self, dtype: Any) -> None:
        library = kernel("lu_factor")
        singular = torch.stack([torch.zeros(3, 3), torch.ones(3, 3), torch.eye(3)]).to(dtype)
        for matrix in (*rectangles(dtype), singular):
            assert_same(run(library, matrix), tuple(torch.linalg.lu_factor_ex(matrix)))

    @pytest.mark.slow
    def test_lu_unpack(self, dtype: Any) -> None:
        library = kernel("lu_unpack")
        for matrix in rectangles(dtype):
            factors = torch.linalg.lu_factor(matrix)
            for data, pivots in itertools.product((1, 0), repeat=2):
                expected = torch.lu_unpack(*factors, bool(data), bool(pivots))
                assert_same(run(library, *factors, unpack_data=data, unpack_pivots=pivots), tuple(expected))
        wrong = torch.tensor([1, 9], dtype=torch.int32)
        with pytest.raises(EngineError, match="a pivot is 9, where there are 2 rows"):
            run(library, torch.eye(2, dtype=dtype), wrong, unpack_data=1, unpack_pivots=1)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["random", "zero diagonal", "zero"])
    def test_ldl(self, dtype: Any, kind: str) -> None:
        for matrix in squares(dtype):
            symmetric = matrix + matrix.mT
            if kind != "random":
                symmetric = symmetric * (1 - torch.eye(matrix.shape[-1], dtype=dtype)) * (kind != "zero")
            factors = run(kernel("ldl_factor"), symmetric)
            assert_same(factors, tuple(torch.linalg.ldl_factor_ex(symmetric)))
            if kind == "random":
                right = random(matrix.shape[-1], 70, dtype=dtype)
                (solved,) = run(kernel("ldl_solve"), *factors[:2], right)
                # Of a matrix that is nearly singular the residual is as large as the rounding of the sums.
                size = 1 + symmetric.abs() @ solved.abs()
                assert_same(symmetric @ solved / size, right / size)

    @pytest.mark.slow
    @pytest.mark.usefixtures("eager_loops")
    def test_ldl_of_extreme_numbers(self, dtype: Any) -> None:
        symmetric = random(2, 5, 5, dtype=dtype)
        symmetric = (symmetric + symmetric.mT) * torch.tensor([2.0**120, 2.0**-100], dtype=dtype).reshape(2, 1, 1)
        expected = torch.linalg.ldl_factor_ex(symmetric)
        for found in (run(kernel("ldl_factor"), symmetric), ldl_factor.ldl_factor(symmetric)):
            torch.testing.assert_close(tuple(found), tuple(expected))

    @pytest.mark.slow
    @pytest.mark.usefixtures("eager_loops")
    def test_ldl_solve_broadcasts_and_checks(self, dtype: Any) -> None:
        library = kernel("ldl_solve")
        matrix, right = random(3, 1, 4, 4, dtype=dtype), random(2, 4, 5, dtype=dtype)
        factors, pivots = torch.linalg.ldl_factor(matrix + matrix.mT)
        assert_same(run(library, factors, pivots, right)[0], ldl_solve.ldl_solve(factors, pivots, right))
        with pytest.raises(EngineError, match=r"sizes \(3, 1, 4, 4\) and \(5, 5\) do not fit"):
            run(library, factors, pivots, random(5, 5, dtype=dtype))
        with pytest.raises(EngineError, match=r"sizes \(3, 1, 4, 4\) and pivots \(3, 1, 3\) do not fit"):
            run(library, factors, pivots[..., :3].contiguous(), right)
        for wrong, message in (([1, 9, 3, 4], "a pivot is 9, where there are 4"), ([1, 2, 3, -4], "-4 stands alone")):
            with pytest.raises(EngineError, match=message):
                run(library, factors[0, 0], torch.tensor(wrong, dtype=torch.int32), right)


class LeastSquares(torch.nn.Module):
    """The solution and the rank by the default driver."""

    def forward(self, a: Any, b: Any) -> Any:
        found = torch.linalg.lstsq(a, b)
        return found.solution, found.rank


@pytest.mark.quick(every=0)
@pytest.mark.parametrize("kernels", ["auto", "never"])
def test_least_squares_of_any_rank(kernels: Any, tmp_path: Path) -> None:
    a, b = random(2, 9, 4), random(2, 9, 3)
    bundle = opbridge.export(LeastSquares(), (a, b), path=tmp_path / "bundle", kernels=kernels)
    lower = a.clone()
    lower[0, :, 3] = lower[0, :, 1] - lower[0, :, 2]
    near = lower.clone()
    near[0, 0, 3] += 1e-6
    run = opbridge.load(bundle.path)
    for matrix, rank in ((a, [4, 4]), (lower, [3, 4]), (near, [4, 4]), (torch.zeros_like(a), [0, 0])):
        solution, ranks = run(matrix.numpy(), b.numpy())
        assert ranks.tolist() == rank == torch.linalg.lstsq(matrix, b).rank.tolist()
        residual, expected = (
            matrix @ x - b for x in (torch.from_numpy(solution), torch.linalg.lstsq(matrix, b).solution)
        )
        torch.testing.assert_close(residual, expected)


class Whitening(torch.nn.Module):
    """Two factorizations of the same size, and one of another."""

    def forward(self, x: Any, y: Any) -> Any:
        covariance = x.mT @ x + torch.eye(x.shape[-1])
        lower = torch.linalg.cholesky(covariance)
        small = torch.linalg.cholesky(y.mT @ y + torch.eye(y.shape[-1]))
        return torch.linalg.solve_triangular(lower, x.mT, upper=False), small, torch.linalg.inv(covariance)


@pytest.mark.sweep
def test_a_model_at_other_sizes_is_verified_with_kernels_and_with_bodies(tmp_path: Path) -> None:
    wide = torch.export.Dim("features", min=2)
    bundle = opbridge.export(
        Whitening(),
        (random(8, 4, dtype=torch.float32), random(8, 3, dtype=torch.float32)),
        path=tmp_path / "bundle",
        dynamic_shapes={"x": {1: wide}, "y": None},
    )
    assert bundle.verified
    import onnx

    functions = {(function.domain, function.name) for function in onnx.load(bundle.path / "model.onnx").functions}
    assert functions == {("opbridge", name) for name in ("Cholesky", "LuFactor", "LuUnpack", "SolveTriangular")}
    (kernels,) = bundle.manifest["kernels"]
    assert len(kernels["operators"]) == 4


@pytest.mark.quick(every=9)
@pytest.mark.parametrize(
    "body",
    [lu_factor.lu_factor, ldl_factor.ldl_factor, householder.factored, lambda x: cholesky.cholesky(x, False)],
    ids=["lu", "ldl", "qr", "cholesky"],
)
def test_a_matrix_of_one_element_is_factored_in_a_loop_too(body: Callable[..., Any]) -> None:
    class Factors(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return body(x)

    assert "while_loop" in str(capture(Factors(), (torch.ones(1, 1),)).program.graph)


def test_factoring_without_pivots_is_refused(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.lu_factor_ex(x, pivot=False).LU

    with pytest.raises((TranslationError, opbridge.UnsupportedOperatorError), match="pivot=False"):
        opbridge.export(Model(), (torch.eye(2),), path=tmp_path / "bundle", verify=False)


def test_repeat_does_nothing_for_a_count_of_zero() -> None:
    start = torch.ones(2)
    assert repeat(0, lambda number, value: (value + 1,), start) == (start,)
