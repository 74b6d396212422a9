"""Local response normalization of data-dependent sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.internals import symbols_of


@rewrite("torch.nn.functional.local_response_norm")
def local_response_norm(
    original: Callable[..., Tensor], input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """``input / (k + alpha * mean of the squares of size channels) ** beta``, where padding counts as zeros.

    torch's function asks whether there are any elements.
    """
    if not symbols_of([input]):
        return NotImplemented
    squares = (input * input).flatten(2).unsqueeze(1)
    means = avg_pool2d(pad(squares, (0, 0, size // 2, (size - 1) // 2)), (size, 1), stride=1)
    return input / (means.squeeze(1).reshape(input.shape) * alpha + k).pow(beta)
