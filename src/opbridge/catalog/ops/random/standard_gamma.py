"""Samples of gamma and Dirichlet distributions, as ONNX nodes; of gamma distributions also with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, fake_for, kernel_translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::StandardGamma", "standard_gamma.h")

_CANDIDATES = 8
"""At least 95% of the candidates are accepted, so that all 8 are rejected at most once in 2e10 samples."""


@decomposition("aten::_standard_gamma")
def standard_gamma(self: Tensor, generator: None = None) -> Tensor:
    """Samples of the gamma distribution with shape parameter ``self`` and scale 1; the least is the smallest normal.

    _standard_gamma(Tensor self, Generator? generator=None) -> Tensor
    """
    least = torch.finfo(self.dtype).tiny
    wide = self if self.dtype == torch.float64 else self.to(torch.float32)
    return gamma_sample(wide, torch.rand(2)).to(self.dtype).clamp_min(least)  # type: ignore[no-any-return]


@torch.library.custom_op("opbridge::gamma_sample", mutates_args=())
def gamma_sample(alpha: Tensor, seed: Tensor) -> Tensor:
    """Samples that may be 0. A kernel uses ``seed``, two numbers in [0, 1)."""
    return torch.ops.aten._standard_gamma(alpha)  # type: ignore[no-any-return]


@gamma_sample.register_fake
def _shape(alpha: Tensor, seed: Tensor) -> Tensor:
    return torch.empty_like(alpha)


@decomposition("opbridge::gamma_sample")
@body_for("opbridge::StandardGamma")
def of_candidates(alpha: Tensor, seed: Tensor) -> Tensor:
    """The same as nodes, which draw random numbers themselves.

    gamma_sample(Tensor alpha, Tensor seed) -> Tensor
    """
    return _logarithm_of_sample(alpha).exp()


@kernel_translation("opbridge::gamma_sample")
def with_kernel(alpha: Any, seed: Any) -> Any:
    """``gamma_sample`` as a custom node with a kernel.

    gamma_sample(Tensor alpha, Tensor seed) -> Tensor
    """
    return custom_node("opbridge::StandardGamma", alpha, seed)


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
