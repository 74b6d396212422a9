"""Powers of the elements of a vector of dynamic length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.vander")
def vander(original: Callable[..., Tensor], x: Tensor, N: Any = None, increasing: bool = False) -> Any:
    """The Vandermonde matrix: ``N`` powers of each element, by default as many as there are elements.

    vander(Tensor x, int? N=None, bool increasing=False) -> Tensor

    torch would make a dynamic length constant.
    """
    count = x.shape[0] if N is None else N
    if not any(isinstance(number, torch.SymInt) for number in (x.shape[0], count)):
        return NotImplemented
    exponents = torch.arange(count, dtype=torch.int64, device=x.device)
    return x.unsqueeze(-1) ** (exponents if increasing else count - 1 - exponents)
