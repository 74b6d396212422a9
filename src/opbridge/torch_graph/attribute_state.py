"""State that ``forward`` keeps in plain tensor attributes, as in ``self.hidden = self.cell(x, self.hidden)``.

torch.export records changes of buffers only. An attribute that is no buffer becomes a constant, and its change is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.state import keeping_state

__all__ = ["changed_attributes_as_buffers"]


@contextlib.contextmanager
def changed_attributes_as_buffers(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Make buffers, inside the block, of the tensor attributes that one run of the module changes.

    The module runs only if it has tensor attributes that are neither parameters nor buffers.

    Args:
        module: The module.
        args: The positional example inputs.
        kwargs: The example inputs by keyword.
    """
    changed = _changed(module, args, kwargs)
    for owner, name, tensor in changed:
        delattr(owner, name)
        owner.register_buffer(name, tensor)
    try:
        yield
    finally:
        for owner, name, tensor in changed:
            del owner._buffers[name]
            setattr(owner, name, tensor)


def _changed(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[torch.nn.Module, str, torch.Tensor]]:
    held = [
        (owner, name, value, value.detach().clone())
        for owner in module.modules()
        for name, value in vars(owner).items()
        if type(value) is torch.Tensor and value.layout is torch.strided
    ]
    if not held:
        return []
    # A model that fails is reported by the capture.
    with (
        keeping_state(module),
        frozen(module),
        own_random_numbers(),
        torch.no_grad(),
        contextlib.suppress(Exception),
    ):
        module(*torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, tuple(args)), **kwargs)
        return [(owner, name, value) for owner, name, value, before in held if _is_other(vars(owner).get(name), before)]
    return []


def _is_other(now: Any, before: torch.Tensor) -> bool:
    """Whether an attribute has other contents, of the same kind, than before."""
    same_kind = isinstance(now, torch.Tensor) and now.shape == before.shape and now.dtype == before.dtype
    return same_kind and not torch.equal(now, before)
