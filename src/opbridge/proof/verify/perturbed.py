"""Perturbs inputs by one rounding error, to show how rounding errors propagate and which decisions are near ties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import ml_dtypes
import numpy as np
import torch

from opbridge.proof.verify.compare import is_floating
from opbridge.proof.verify.inputs import to_numpy, to_torch

__all__ = ["PERTURBED_RUNS", "perturbed", "perturbed_feeds", "perturbing"]

PERTURBED_RUNS = 5
"""The number of runs on perturbed inputs."""


def perturbed(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A floating-point array with every number changed by about one machine epsilon; any other array unchanged.

    NaN, infinities and subnormal numbers are not changed, and the largest number does not become infinite.
    """
    if not is_floating(array.dtype):
        return array
    info = ml_dtypes.finfo(array.dtype)
    numbers = array.astype(np.float64)
    with np.errstate(all="ignore"):
        changed = numbers * (1 + float(info.eps) * random.standard_normal(array.shape))
    kept = ~np.isfinite(numbers) | (np.abs(numbers) < float(info.smallest_normal))
    return np.asarray(np.where(kept, numbers, np.clip(changed, float(info.min), float(info.max))).astype(array.dtype))


def perturbed_feeds(
    feeds: Mapping[str, np.ndarray], seed: int, count: int = PERTURBED_RUNS
) -> Iterator[dict[str, np.ndarray]]:
    """The inputs perturbed ``count`` times; the same seed gives the same numbers."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield {name: perturbed(np.asarray(array), random) for name, array in feeds.items()}


def perturbing(random: np.random.Generator | None) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A function that perturbs a tensor; None without a generator."""
    if random is None:
        return None

    def perturb(value: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = to_torch(perturbed(to_numpy(value), random), value)
        return found

    return perturb
