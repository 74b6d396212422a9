"""The inverse short-time Fourier transform to a dynamic length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.istft")
@rewrite("torch.Tensor.istft")
def istft(
    original: Callable[..., Tensor],
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """The signal of a spectrogram, cut or padded to ``length``, which torch would make constant.

    istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True,
    bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor

    The sum of the windowed frames is divided by the sum of the squared windows.
    """
    if not isinstance(length, torch.SymInt) or return_complex:
        return NotImplemented
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    weight = torch.ones(width, dtype=input.real.dtype) if window is None else window
    weight = torch.nn.functional.pad(weight, [(n_fft - width) // 2, n_fft - width - (n_fft - width) // 2])
    spectrum = (input.unsqueeze(0) if input.dim() == 2 else input).transpose(1, 2)
    norm = "ortho" if normalized else "backward"
    is_half = onesided is True or (onesided is None and input.shape[-2] != n_fft)
    frames = torch.fft.irfft(spectrum, n_fft, norm=norm) if is_half else torch.fft.ifft(spectrum, norm=norm).real
    total = n_fft + hop * (frames.shape[1] - 1)
    start = n_fft // 2 if center else 0
    missing = torch.sym_max(start + length - total, 0)

    def overlapped(parts: Tensor, value: float) -> Tensor:
        signal = torch.nn.functional.fold(parts.mT, (1, total), (1, n_fft), stride=(1, hop)).flatten(1)
        return torch.nn.functional.pad(signal, [0, missing], value=value).narrow(1, start, length)

    weights = weight.square().expand(1, frames.shape[1], n_fft)
    signal = overlapped(frames * weight, 0.0) / overlapped(weights, 1.0)
    return signal.squeeze(0) if input.dim() == 2 else signal
