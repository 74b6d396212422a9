"""Random outputs are judged by their distribution, and by no more than the draws can show."""

from __future__ import annotations

import numpy as np
import pytest

from opbridge.proof.verify.distribution import compare_runs

RUNS = 16


def coins(chance: float, seed: int, shape: tuple[int, ...] = ()) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [np.asarray(random.random(shape) < chance, np.float32) for _ in range(RUNS)]


def test_draws_that_never_change_are_found() -> None:
    random = np.random.default_rng(0)
    drawn = [random.random(5) for _ in range(RUNS)]
    assert "the same numbers in every run" in compare_runs([drawn[0]] * RUNS, drawn)
    assert "the same numbers in every run" in compare_runs([np.ones(())] * RUNS, coins(0.5, 1))


@pytest.mark.parametrize("chance", [0.9, 0.97])
def test_a_coin_that_falls_on_one_side_is_no_proof(chance: float) -> None:
    always = [np.ones((), np.float32)] * RUNS
    changing = next(found for seed in range(100) if np.ptp(found := coins(chance, seed)) > 0)
    assert compare_runs(always, changing) == ""


def test_another_probability_is_found() -> None:
    assert compare_runs(coins(0.5, 1, (400,)), coins(0.5, 2, (400,))) == ""
    assert "differ" in compare_runs(coins(0.5, 1, (400,)), coins(0.6, 2, (400,)))


def test_elements_that_do_not_vary_may_differ_by_rounding() -> None:
    random = np.random.default_rng(0)
    fixed = random.random(32).astype(np.float32)
    mine, others = (
        [np.concatenate([base, random.standard_normal(32).astype(np.float32)]) for _ in range(RUNS)]
        for base in (fixed, np.nextafter(fixed, np.float32(2)))
    )
    assert compare_runs(mine, others) == ""
    assert "differ" in compare_runs(mine, [run + np.float32(0.01) * (np.arange(64) < 32) for run in others])


def test_draws_without_an_effect() -> None:
    fixed = np.append(np.ones(31, np.float32), np.float32(1e-4))
    rounded = fixed + np.append(np.zeros(31), 3e-9).astype(np.float32)
    assert compare_runs([rounded] * RUNS, [fixed] * RUNS) == ""
    assert "differ" in compare_runs([rounded + np.float32(1e-3)] * RUNS, [fixed] * RUNS)
