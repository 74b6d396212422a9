"""Operators that draw: what they draw, how often, and that they draw anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from linalg_kernels import needs_compiler  # noqa: E402

import opbridge  # noqa: E402

pytestmark = pytest.mark.one_worker

DRAWS = 4000
WEIGHTS = (0.0, 1.0, 2.0, 5.0)


class Draws(torch.nn.Module):
    def forward(self, chances: torch.Tensor, weights: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.bernoulli(chances),
            torch.multinomial(weights, DRAWS, replacement=True),
            torch.multinomial(weights.expand(DRAWS, 4), 3),
            torch.nn.functional.rrelu(x, 0.2, 0.4, training=True),
        )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[list[np.ndarray]]:
    chances = torch.tensor([0.0, 0.25, 1.0]).repeat(DRAWS, 1)
    inputs = (chances, torch.tensor(WEIGHTS), torch.linspace(-1, 1, DRAWS))
    folder = tmp_path_factory.mktemp("random")
    bundle = opbridge.export(Draws(), inputs, path=folder / "bundle", verify=False)
    session = opbridge.load(bundle.path)
    return [list(session(*(tensor.numpy() for tensor in inputs))) for _ in range(2)]


def test_coins_fall_as_often_as_they_should(runs: list[list[np.ndarray]]) -> None:
    coins = runs[0][0]
    assert set(np.unique(coins)) == {0.0, 1.0}
    assert coins[:, 0].max() == 0
    assert coins[:, 2].min() == 1
    assert abs(coins[:, 1].mean() - 0.25) < 0.04


def test_draws_with_replacement_follow_the_weights(runs: list[list[np.ndarray]]) -> None:
    counts = np.bincount(runs[0][1], minlength=4)
    assert counts[0] == 0
    assert np.abs(counts / DRAWS - np.array(WEIGHTS) / 8).max() < 0.04


def test_draws_without_replacement_never_repeat(runs: list[list[np.ndarray]]) -> None:
    rows = runs[0][2]
    assert (np.sort(rows, axis=1) == [1, 2, 3]).all()
    assert abs((rows[:, 0] == 3).mean() - 5 / 8) < 0.04


def test_slopes_are_drawn_from_their_range(runs: list[list[np.ndarray]]) -> None:
    x = torch.linspace(-1, 1, DRAWS).numpy()
    slopes = runs[0][3] / x
    assert np.allclose(slopes[x > 0], 1)
    low = slopes[x < 0]
    assert low.min() >= 0.2 - 1e-5
    assert low.max() <= 0.4 + 1e-5
    assert abs(low.mean() - 0.3) < 0.01


def test_every_run_draws_anew(runs: list[list[np.ndarray]]) -> None:
    assert all((first != second).any() for first, second in zip(*runs, strict=True))


SHAPES = (0.01, 0.3, 1.0, 2.5, 40.0)


class Distributions(torch.nn.Module):
    def forward(self, shapes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        distributions = torch.distributions
        return (
            distributions.Gamma(shapes, 2.0, validate_args=False).rsample(),
            distributions.Beta(shapes, 2.0, validate_args=False).rsample(),
            distributions.Dirichlet(shapes, validate_args=False).rsample(),
            distributions.Chi2(shapes, validate_args=False).rsample(),
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "kernels"),
    [
        pytest.param(torch.float32, "auto", marks=needs_compiler),
        pytest.param(torch.float32, "never", marks=pytest.mark.sweep),
        pytest.param(torch.float64, "auto", marks=[pytest.mark.sweep, needs_compiler]),
    ],
)
def test_gamma_samples_and_what_is_made_of_them(dtype: torch.dtype, kernels: str, tmp_path: Path) -> None:
    shapes = torch.tensor(SHAPES, dtype=dtype).expand(DRAWS, -1).contiguous()
    bundle = opbridge.export(Distributions(), (shapes,), path=tmp_path / "bundle", verify=False, kernels=kernels)
    assert bool(bundle.manifest["kernels"]) == (kernels == "auto")
    drawn = opbridge.load(bundle.path)(shapes.numpy())
    torch.manual_seed(0)
    for engine, own in zip(drawn, Distributions()(shapes), strict=True):
        for column in range(len(SHAPES)):
            # The distance of equal distributions is greater than this once in 1e5 pairs of samples: 2 exp(-2 * 2.5**2).
            assert _distance(engine[:, column], own[:, column].numpy()) < 2.5 * (2 / DRAWS) ** 0.5
    assert np.isfinite(np.concatenate(drawn)).all()
    assert np.allclose(drawn[2].sum(-1), 1)


class Generators(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator()
        return (
            torch.randn(x.shape, generator=None, dtype=x.dtype),
            torch.rand(x.shape[0], 2, generator=generator),
            torch.randint(3, 7, x.shape, generator=generator),
            torch.randperm(x.shape[0], generator=generator),
        )


def test_a_generator_is_left_out(tmp_path: Path) -> None:
    shapes = {"x": {0: torch.export.Dim("n")}}
    bundle = opbridge.export(
        Generators(), (torch.zeros(5, 3),), path=tmp_path / "bundle", dynamic_shapes=shapes, verify=False
    )
    session = opbridge.load(bundle.path)
    normal, uniform, integers, order = session(np.zeros((DRAWS, 3), np.float32))
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 1) < 0.05
    assert uniform.shape == (DRAWS, 2)
    assert abs(uniform.mean() - 0.5) < 0.05
    assert set(np.unique(integers)) == {3, 4, 5, 6}
    assert sorted(order) == list(range(DRAWS))
    assert (order != session(np.zeros((DRAWS, 3), np.float32))[3]).any()


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of two samples, to six digits of their values."""
    first, second = (np.sort(np.float32(sample)) for sample in (first, second))
    places = np.concatenate([first, second])
    ranks = [np.searchsorted(sample, places, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(ranks[0] - ranks[1]).max())
