"""Runs a module in eager PyTorch, in evaluation mode, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.gradients import needs_gradients
from opbridge.torch_graph.outputs import opened
from opbridge.torch_graph.random_numbers import own_random_numbers
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
    inputs = torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs)))
    plain = [value for value in inputs if isinstance(value, torch.Tensor) and not value.requires_grad]
    with keeping_state(module), frozen(module), own_random_numbers(seed), torch.no_grad():
        try:
            results = module(*args, **kwargs)
        except RuntimeError as error:
            if not needs_gradients(error):
                raise
            torch.manual_seed(seed)
            results = _with_gradients(module, args, kwargs)
        finally:
            for value in plain:
                value.requires_grad_(False)
        # A returned tensor may be part of the module's state, which is restored.
        leaves = torch.utils._pytree.tree_leaves(opened(results))
        return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in leaves]


def _with_gradients(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results of a module that computes gradients."""
    own = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (tuple(args), dict(kwargs)))
    with torch.enable_grad():
        return module(*own[0], **own[1])
