"""Runs the user's module, for comparison with its captured graph. The module's state is not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.eager import run_eager

__all__ = ["Eager"]


class Eager:
    """A module in evaluation mode, whose state is restored after each run.

    Args:
        module: The user's module.
        positions: The positions of the flattened outputs that are compared.
    """

    def __init__(self, module: torch.nn.Module, positions: Sequence[int]) -> None:
        self._module = module
        self._positions = positions

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, seed: int) -> list[Any]:
        """The flattened outputs that are compared; see :func:`run_eager`."""
        results = run_eager(self._module, args, kwargs, seed=seed)
        return [results[position] for position in self._positions if position < len(results)]
