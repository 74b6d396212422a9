"""Channel shuffle of data-dependent sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.internals import symbols_of


@rewrite("torch.channel_shuffle")
def channel_shuffle(original: Callable[..., Tensor], input: Tensor, groups: int) -> Any:
    """The channels (axis 1) of all groups in turn; torch's operator asks whether there are any elements."""
    if not symbols_of([input]):
        return NotImplemented
    return input.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
