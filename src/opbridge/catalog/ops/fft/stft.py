"""The short-time Fourier transform, by a convolution where engines' own transform loses digits or takes more time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined
from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.fourier import LONGEST_PRODUCT, keeps_its_digits
from opbridge.catalog.formulas.windows import windows

_WHY = "torch's mapping loses digits where n_fft is no power of two (ONNX Runtime is off by 1e-4 at 400)"
_SHORT = 512
"""The longest frame for which a convolution takes less time: 0.6 of that of ONNX Runtime 1.32 for 256 and 512."""


@decomposition("aten::stft.default", overrides=_WHY)
def stft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The spectrum of every frame of ``n_fft`` numbers, ``hop_length`` apart.

    stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None,
    bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor

    In float32 a frame is multiplied by the sines and cosines, which are rounded from float64. Other types, and frames
    for which these would take too much memory, are cut out and left to the mappings of ``torch.fft``.
    """
    dtype = self.dtype if window is None else torch.promote_types(self.dtype, window.dtype)
    own = self.dtype in (torch.float32, torch.float64) and dtype == self.dtype and align_to_window is None
    if own and keeps_its_digits([n_fft]) and (n_fft > _SHORT or dtype == torch.float64):
        return NotImplemented
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    window = torch.ones(width) if window is None and width < n_fft else window
    if window is not None and width < n_fft:
        window = torch.nn.functional.pad(window, [(n_fft - width) // 2, n_fft - width - (n_fft - width) // 2])
    signal = self.unsqueeze(0) if self.dim() == 1 else self
    if align_to_window:
        signal = torch.nn.functional.pad(signal, [(n_fft - width) // 2] * 2)
    bins = n_fft // 2 + 1 if (not dtype.is_complex if onesided is None else onesided) else n_fft
    scale = n_fft**-0.5 if normalized else 1.0
    exact = dtype in (torch.float32, torch.complex64) and not (window is not None and window.is_complex())
    transform = _by_convolution if exact and n_fft <= LONGEST_PRODUCT else _by_frames
    spectrum = transform(signal, window, n_fft, hop, bins, scale)
    spectrum = spectrum.squeeze(0) if self.dim() == 1 else spectrum
    return torch.view_as_real(spectrum) if return_complex is False else spectrum


def _by_convolution(signal: Tensor, window: Tensor | None, length: int, hop: int, bins: int, scale: float) -> Tensor:
    places = np.outer(np.arange(bins), np.arange(length)) % length
    angles = 2 * np.pi * places / length
    waves = scale * np.concatenate([np.cos(angles), -np.sin(angles)])
    weight = torch.as_tensor(waves.astype(np.float32))
    weight = (weight if window is None else weight * window).unsqueeze(1)

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        pair = torch.nn.functional.conv1d(x.unsqueeze(1), weight, stride=hop)
        return pair.narrow(1, 0, bins), pair.narrow(1, bins, bins)

    if not signal.is_complex():
        return joined(*parts(signal))
    (a, b), (c, d) = parts(signal.real), parts(signal.imag)
    return joined(a - d, b + c)


def _by_frames(signal: Tensor, window: Tensor | None, length: int, hop: int, bins: int, scale: float) -> Tensor:
    count: Any = (signal.shape[-1] - length) // hop + 1
    frames = windows(signal, signal.dim() - 1, length, count, hop, 1)
    frames = frames if window is None else frames * window
    transform = torch.fft.fft if bins == length else torch.fft.rfft
    return (transform(frames) * scale).transpose(1, 2)
