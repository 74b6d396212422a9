"""Runs a module in eager PyTorch, in evaluation mode, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.outputs import opened
from opbridge.torch_graph.state import keeping_state

__all__ = ["run_eager"]


def run_eager(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], *, seed: int = 0) -> list[Any]:
    """The flattened outputs.

    Args:
        module: The module; its state is restored afterwards.
        args: The arguments.
        kwargs: The keyword arguments.
        seed: The seed of torch's random numbers.

    Raises:
        Exception: Any exception that the module raises.
    """
    with keeping_state(module), frozen(module), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        results = torch.utils._pytree.tree_leaves(opened(module(*args, **kwargs)))
        # A returned tensor may be part of the module's state, which is restored.
        return [value.clone() if isinstance(value, torch.Tensor) else value for value in results]
