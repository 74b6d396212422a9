"""Recursive filters of torchaudio (biquads, loudness), which compute one sample after another."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from opbridge.catalog.declare.spec import rewrite


@rewrite("torchaudio.functional.filtering._lfilter")
def lfilter(original: Callable[..., Tensor], waveform: Tensor, a_coeffs: Tensor, b_coeffs: Tensor) -> Tensor:
    """``a[0] y[t] = sum(b[k] x[t - k]) - sum(a[k] y[t - k], k > 0)`` of (batch, channels, time), as a loop over time.

    The coefficients have the shape (channels, order). torchaudio's own operator writes into an argument.
    """
    order = a_coeffs.shape[1]
    feedback = (a_coeffs / a_coeffs[:, :1])[:, 1:]
    forward = (b_coeffs / a_coeffs[:, :1]).flip(1).unsqueeze(1)
    padded = functional.pad(waveform, (order - 1, 0))
    samples = functional.conv1d(padded, forward, groups=b_coeffs.shape[0]).permute(2, 0, 1).contiguous()

    def unfinished(time: Tensor, earlier: Tensor, output: Tensor) -> Tensor:
        return time < samples.shape[0]

    def advance(time: Tensor, earlier: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sample = samples.index_select(0, time.reshape(1)).squeeze(0) - (earlier * feedback).sum(-1)
        earlier = torch.cat([sample.unsqueeze(-1), earlier[..., :-1]], -1)
        return time + 1, earlier, output.index_copy(0, time.reshape(1), sample.unsqueeze(0))

    earlier = samples.new_zeros((*samples.shape[1:], order - 1))
    start = (torch.zeros((), dtype=torch.int64), earlier, torch.zeros_like(samples))
    _, _, output = torch.while_loop(unfinished, advance, start)
    return output.permute(1, 2, 0)
