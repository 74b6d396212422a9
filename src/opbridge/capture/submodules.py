"""Submodules that give way to others while a model is captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn

__all__ = ["replaced_submodules"]


@contextlib.contextmanager
def replaced_submodules(module: nn.Module, replacement: Callable[[nn.Module], nn.Module | None]) -> Iterator[bool]:
    """Replace submodules inside the block; yields whether there are any to replace.

    Args:
        module: The module.
        replacement: The module that takes the place of a submodule; None leaves the submodule.
    """
    replaced: list[tuple[nn.Module, str, nn.Module]] = []
    try:
        # A TorchScript module takes no others.
        for parent in [part for part in module.modules() if not isinstance(part, torch.jit.ScriptModule)]:
            for name, child in parent._modules.items():
                other = replacement(child) if child is not None else None
                if child is not None and other is not None:
                    replaced.append((parent, name, child))
                    parent._modules[name] = other
        yield bool(replaced)
    finally:
        for parent, name, child in replaced:
            parent._modules[name] = child
