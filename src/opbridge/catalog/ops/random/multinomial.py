"""Samples of the multinomial distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::multinomial", overrides="torch's mapping always draws with replacement")
def multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, generator: None = None) -> Tensor:
    """Indices drawn for each row with probabilities proportional to its elements.

    multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor

    Without replacement, the weights divided by exponential samples are sorted, and the largest are selected (Efraimidis
    and Spirakis 2006; PyTorch does the same). With replacement, the cumulative sum of the weights is searched.
    """
    weights = self.float() if self.dtype.itemsize < 4 else self
    if not replacement:
        waiting = -torch.log1p(-torch.rand(weights.shape, dtype=weights.dtype))
        # A sample of 0 is replaced by the smallest positive number.
        keys = weights / waiting.clamp_min(torch.finfo(weights.dtype).tiny)
        return torch.topk(keys, num_samples, dim=-1).indices
    running = torch.cumsum(weights, -1)
    places = torch.rand((*weights.shape[:-1], num_samples), dtype=weights.dtype) * running[..., -1:]
    found = torch.searchsorted(running, places, right=True)
    return found.clamp_max(weights.shape[-1] - 1)
