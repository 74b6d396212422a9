"""Instance normalization of data-dependent sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.internals import symbols_of


@rewrite("torch.nn.functional.instance_norm")
def instance_norm(
    original: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """A group normalization with one group per channel, or a batch normalization with the running statistics.

    torch's function asks whether there are any elements.
    """
    if not symbols_of([input]):
        return NotImplemented
    if use_input_stats:
        return torch.group_norm(input, input.shape[1], weight, bias, eps)
    return torch.nn.functional.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
