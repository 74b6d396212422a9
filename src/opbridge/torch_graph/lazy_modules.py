"""Lazy modules, whose parameters have no shape before the first run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from opbridge.torch_graph.random_numbers import own_random_numbers

__all__ = ["initialized"]


def initialized(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.nn.Module:
    """The module itself, or a copy of it whose lazy parameters are initialized.

    Only a module that computes its lazy parameters, like the kernel of a resampler, is initialized: those of
    ``nn.LazyLinear`` are drawn at random, so that a model that has not run yet has not been trained either.

    Args:
        module: The module, which is not changed.
        args: The positional example inputs.
        kwargs: The example inputs by keyword.

    Returns:
        The copy after one run on the example inputs, if all parameters are initialized then, and are the same after
        runs with two seeds; otherwise the module itself.
    """
    if not _is_lazy(module):
        return module
    try:
        first, second = (_after_a_run(module, args, kwargs, seed) for seed in (0, 1))
    except Exception:  # The capture reports why the model fails.
        return module
    is_computed = not _is_lazy(first) and all(
        torch.equal(a, b) for a, b in zip(_tensors(first), _tensors(second), strict=True)
    )
    return first if is_computed else module


def _after_a_run(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int) -> torch.nn.Module:
    copied = copy.deepcopy(module)
    training = {name: one.training for name, one in copied.named_modules()}
    inputs = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, (tuple(args), dict(kwargs)))
    with own_random_numbers(seed), torch.no_grad():
        copied.eval()(*inputs[0], **inputs[1])
    for name, one in copied.named_modules():
        one.training = training[name]
    return copied


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _is_lazy(module: torch.nn.Module) -> bool:
    return any(is_lazy(tensor) for tensor in _tensors(module))
