"""Samples of gamma and Dirichlet distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, fake_for

_CANDIDATES = 8
"""At least 95% of the candidates are accepted, so that all 8 are rejected at most once in 2e10 samples."""


@decomposition("aten::_standard_gamma")
def standard_gamma(self: Tensor, generator: None = None) -> Tensor:
    """Samples of the gamma distribution with shape parameter ``self`` and scale 1; the least is the smallest normal.

    _standard_gamma(Tensor self, Generator? generator=None) -> Tensor
    """
    return _logarithm_of_sample(self).exp().to(self.dtype).clamp_min(torch.finfo(self.dtype).tiny)


@decomposition("aten::_sample_dirichlet")
def sample_dirichlet(self: Tensor, generator: None = None) -> Tensor:
    """Samples of Dirichlet distributions, whose concentrations are in the last axis: gamma samples over their sum.

    _sample_dirichlet(Tensor self, Generator? generator=None) -> Tensor
    """
    limits = torch.finfo(self.dtype)
    return _logarithm_of_sample(self).softmax(-1).to(self.dtype).clamp(limits.tiny, 1 - limits.eps / 2)


@fake_for("aten::_sample_dirichlet")
def dirichlet_shape(self: Tensor, generator: None = None) -> Tensor:
    """The shape function, which torch does not have."""
    return torch.empty_like(self)


def _logarithm_of_sample(alpha: Tensor) -> Tensor:
    """The logarithm of a gamma sample, which does not underflow if the shape parameter ``alpha`` is small.

    Marsaglia and Tsang, "A simple method for generating gamma variables", ACM Transactions on Mathematical Software 26
    (2000). Without a loop: the sample is the first accepted of a fixed number of candidates. A shape parameter below 1
    is raised by 1, and the sample is multiplied by U ** (1 / alpha).
    """
    alpha = alpha.to(torch.float64 if alpha.dtype == torch.float64 else torch.float32)
    is_small = alpha < 1
    d = torch.where(is_small, alpha + 1, alpha) - 1 / 3
    candidates = torch.stack([_candidate(d) for _ in range(_CANDIDATES)])
    accepted = (candidates > 0).to(torch.int32).argmax(0, keepdim=True)
    sample = torch.log(d * candidates.gather(0, accepted).squeeze(0))
    # rand is in [0, 1), and the logarithm of 0 is not finite.
    return torch.where(is_small, sample + torch.log(1 - torch.rand_like(alpha)) / alpha, sample)


def _candidate(d: Tensor) -> Tensor:
    """The cube v of a shifted normal variable, so that d v is a gamma sample; 0 if the candidate is rejected."""
    x = torch.randn_like(d)
    v = (1 + x / torch.sqrt(9 * d)) ** 3
    limit = 0.5 * x.square() + d * (1 - v + torch.log(v.clamp_min(torch.finfo(d.dtype).tiny)))
    is_accepted = (v > 0) & (torch.log(1 - torch.rand_like(d)) < limit)
    return torch.where(is_accepted, v, 0)
