"""The user's own module, run for comparison with its captured graph and left as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.outputs import opened
from opbridge.torch_graph.state import keeping_state

__all__ = ["Eager"]


class Eager:
    """A module in evaluation mode that keeps its state over a run.

    Args:
        module: The user's module.
        positions: The positions of the flattened outputs that are compared.
    """

    def __init__(self, module: torch.nn.Module, positions: Sequence[int]) -> None:
        self._module = module
        self._positions = positions

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, seed: int) -> list[Any]:
        """The flattened outputs that are compared.

        Args:
            args: The arguments.
            kwargs: The keyword arguments.
            seed: The seed of torch's random numbers.

        Raises:
            Exception: Any exception that the module raises.
        """
        with keeping_state(self._module), frozen(self._module), torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            results = torch.utils._pytree.tree_leaves(opened(self._module(*args, **kwargs)))
            # A returned tensor may be part of the model's state, which is restored.
            results = [value.clone() if isinstance(value, torch.Tensor) else value for value in results]
        return [results[position] for position in self._positions if position < len(results)]
