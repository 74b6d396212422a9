"""The user's own module, run for comparison with its captured graph and left as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opbridge.graph.freeze import frozen
from opbridge.graph.outputs import opened

__all__ = ["Eager"]


class Eager:
    """A module in evaluation mode that keeps its state over a run.

    Args:
        module: The user's.
        positions: Which of the flattened outputs count.
    """

    def __init__(self, module: torch.nn.Module, positions: Sequence[int]) -> None:
        self._module = module
        self._positions = positions

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, seed: int) -> list[Any]:
        """The outputs that count, flattened.

        Args:
            args: The arguments.
            kwargs: The keyword arguments.
            seed: Of torch's random numbers.

        Raises:
            Exception: Whatever the module raises.
        """
        parts = [(part, dict(part._buffers)) for part in self._module.modules()]
        contents = [
            (buffer, buffer.clone()) for _, buffers in parts for buffer in buffers.values() if buffer is not None
        ]
        try:
            with frozen(self._module), torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(seed)
                results = torch.utils._pytree.tree_leaves(opened(self._module(*args, **kwargs)))
        finally:
            with torch.no_grad():
                for part, buffers in parts:
                    part._buffers.clear()
                    part._buffers.update(buffers)
                for buffer, content in contents:
                    buffer.copy_(content)
        return [results[position] for position in self._positions if position < len(results)]
