"""Spectrograms, filters and codecs on audio of any length."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from side_by_side import Situation
from torch import nn
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class Stft(nn.Module):
    def __init__(self):
        super().__init__()
        self._window = torch.hann_window(window_length=320)

    def forward(self, signals):
        return signals.stft(
            n_fft=512, hop_length=160, win_length=320, return_complex=True, window=self._window, pad_mode="constant"
        )


class Spectrogram(nn.Module):
    """A power spectrogram as torchaudio computes it, with leading dimensions folded and unfolded."""

    def __init__(self, n_fft=64, power=2.0):
        super().__init__()
        self.n_fft, self.power = n_fft, power
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, waveform):
        shape = waveform.size()
        spectrum = torch.stft(
            waveform.reshape(-1, shape[-1]),
            self.n_fft,
            self.n_fft // 2,
            window=self.window,
            center=True,
            pad_mode="reflect",
            return_complex=True,
        )
        spectrum = spectrum.reshape(shape[:-1] + spectrum.shape[-2:])
        return spectrum.abs().pow(self.power)


def mel_filters(frequencies: int, mels: int, rate: float) -> torch.Tensor:
    """Triangles that are evenly spaced on the mel scale, (frequencies, mels)."""
    points = 700 * (10 ** (torch.linspace(0, 2595 * math.log10(1 + rate / 1400), mels + 2) / 2595) - 1)
    slopes = points[None] - torch.linspace(0, rate / 2, frequencies)[:, None]
    step = points[1:] - points[:-1]
    return torch.clamp(torch.minimum(-slopes[:, :-2] / step[:-1], slopes[:, 2:] / step[1:]), min=0)


class MelSpectrogram(nn.Module):
    def __init__(self, n_fft=400, mels=40):
        super().__init__()
        self.spectrogram = Spectrogram(n_fft)
        self.register_buffer("filters", mel_filters(n_fft // 2 + 1, mels, 16000.0))

    def forward(self, waveform):
        return (self.spectrogram(waveform).transpose(-1, -2) @ self.filters).transpose(-1, -2)


class Mfcc(nn.Module):
    """The cosine transform of the mel spectrogram in decibels."""

    def __init__(self, mels=40, coefficients=13):
        super().__init__()
        self.mel = MelSpectrogram(mels=mels)
        k = torch.arange(coefficients)[None]
        dct = torch.cos(math.pi / mels * (torch.arange(mels)[:, None] + 0.5) * k) * math.sqrt(2 / mels)
        self.register_buffer("dct", dct)

    def forward(self, waveform):
        decibels = 10 * torch.log10(torch.clamp(self.mel(waveform), min=1e-10))
        decibels = torch.maximum(decibels, decibels.amax((-2, -1), keepdim=True) - 80)
        return (decibels.transpose(-1, -2) @ self.dct).transpose(-1, -2)


class WhisperFeatures(nn.Module):
    """The log spectrogram that Whisper takes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("filters", mel_filters(201, 80, 16000.0).T.contiguous())

    def forward(self, audio):
        spectrum = torch.stft(audio, 400, 160, window=self.window, return_complex=True)
        magnitudes = spectrum[..., :-1].abs() ** 2
        log_spec = torch.clamp(self.filters @ magnitudes, min=1e-10).log10()
        log_spec = torch.maximum(log_spec, log_spec.amax((-2, -1), keepdim=True) - 8.0)
        return (log_spec + 4.0) / 4.0


class StftOfOne(nn.Module):
    """The spectrum of one signal without a batch."""

    def forward(self, signal):
        window = torch.hamming_window(48)
        spectrum = torch.stft(signal, 48, 12, window=window, center=False, return_complex=True)
        return torch.view_as_real(spectrum)


class Vocoder(nn.Module):
    """Magnitude and phase become sound by the inverse transform (Vocos)."""

    def __init__(self, n_fft=32):
        super().__init__()
        self.n_fft, self.out = n_fft, nn.Linear(6, n_fft + 2)
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, x):
        magnitude, phase = self.out(x).transpose(1, 2).chunk(2, dim=1)
        magnitude = torch.clip(torch.exp(magnitude), max=1e2)
        spectrum = magnitude * (torch.cos(phase) + 1j * torch.sin(phase))
        return torch.istft(spectrum, self.n_fft, self.n_fft // 4, self.n_fft, self.window, center=True)


class OverlapAdd(nn.Module):
    """An inverse transform with fold, whose output length is computed from the number of frames."""

    def __init__(self, n_fft=16, hop=4):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, spectrum):
        frames = torch.fft.irfft(torch.complex(spectrum[..., 0], spectrum[..., 1]), self.n_fft, dim=1)
        frames = frames * self.window[None, :, None]
        time = frames.shape[-1]
        size = (time - 1) * self.hop + self.n_fft
        options = {"output_size": (1, size), "kernel_size": (1, self.n_fft), "stride": (1, self.hop)}
        sound = F.fold(frames, **options)[:, 0, 0]
        envelope = F.fold(self.window.square().expand(1, time, -1).transpose(1, 2), **options)[:, 0, 0]
        return sound[:, self.hop : -self.hop] / envelope[:, self.hop : -self.hop]


class SincConv(nn.Module):
    """Band-pass filters with learned cut-off frequencies (SincNet)."""

    def __init__(self, channels=6, kernel=25, rate=16000):
        super().__init__()
        self.rate, self.min_low_hz, self.min_band_hz = rate, 50, 50
        edges = torch.linspace(30, 7000, channels + 1)
        self.low_hz_ = nn.Parameter(edges[:-1, None].clone())
        self.band_hz_ = nn.Parameter(edges.diff()[:, None].clone())
        half = torch.arange(1, kernel // 2 + 1).float()
        self.register_buffer("n_", 2 * math.pi * half[None] / rate)
        self.register_buffer("window_", torch.hamming_window(kernel)[: kernel // 2].flip(0))

    def forward(self, waveforms):
        low = self.min_low_hz + torch.abs(self.low_hz_)
        high = torch.clamp(low + self.min_band_hz + torch.abs(self.band_hz_), self.min_low_hz, self.rate / 2)
        band = (high - low)[:, 0]
        right = (torch.sin(high @ self.n_) - torch.sin(low @ self.n_)) / (self.n_ / 2) * self.window_
        filters = torch.cat([right.flip(1), 2 * band[:, None], right], 1) / (2 * band[:, None])
        return F.conv1d(waveforms, filters[:, None], stride=2, padding=12)


class ConformerLengths(nn.Module):
    """The mask of a batch is as long as the longest length says."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 6)

    def forward(self, input, lengths):
        max_length = int(torch.max(lengths).item())
        padding = torch.arange(max_length).expand(lengths.shape[0], max_length) >= lengths.unsqueeze(1)
        return self.project(input).masked_fill(padding.unsqueeze(-1), 0.0), lengths


class FftConv(nn.Module):
    """A long convolution in the frequency domain, block by block."""

    def __init__(self, kernel=9, block=32):
        super().__init__()
        self.block = block
        self.weight = nn.Parameter(torch.randn(3, 2, kernel) / 4)

    def forward(self, x):
        length, kernel, block = x.shape[-1], self.weight.shape[-1], self.block
        fold = block - kernel + 1
        frames = math.ceil((length - kernel + 1) / fold)
        padded = F.pad(x, (0, (frames - 1) * fold + block - length))
        blocks = padded.unfold(-1, block, fold)
        spectrum = torch.fft.rfft(F.pad(self.weight, (0, block - kernel))).conj()
        product = torch.einsum("bcft,dct->bdft", torch.fft.rfft(blocks), spectrum)
        out = torch.fft.irfft(product, block)[..., :fold]
        return out.reshape(x.shape[0], 3, -1)[..., : length - kernel + 1]


class CodecConv(nn.Module):
    """A strided convolution whose padding makes the last window full (EnCodec)."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 8, stride=4)

    def forward(self, x):
        kernel, stride, total = 8, 4, 4
        frames = (x.shape[-1] - kernel + total) / stride + 1
        ideal = (math.ceil(frames) - 1) * stride + (kernel - total)
        return self.conv(F.pad(x, (total, ideal - x.shape[-1])))


REPORTS = (
    Report(
        "stft with a window and constant padding",
        "https://github.com/pytorch/pytorch/issues/113067",
        lambda: Situation(Stft(), (torch.randn(2, 1600),), dynamic_shapes={"signals": {0: D, 1: D}}),
    ),
    Report(
        "Spectrogram with a dynamic batch",
        "https://github.com/pytorch/pytorch/issues/148687",
        lambda: Situation(Spectrogram(), (torch.randn(2, 1, 640),), dynamic_shapes={"waveform": {0: D}}),
    ),
    Report(
        "MelSpectrogram of any length",
        "https://github.com/adobe-research/convmelspec/issues/10",
        lambda: Situation(MelSpectrogram(), (torch.randn(2, 2400),), dynamic_shapes={"waveform": {0: D, 1: D}}),
    ),
    Report(
        "MFCC of any length",
        "https://github.com/fschmid56/EfficientAT/issues/27",
        lambda: Situation(Mfcc(), (torch.randn(2, 2400),), dynamic_shapes={"waveform": {1: D}}),
    ),
    Report(
        "Whisper's log spectrogram: the STFT is inexact",
        "https://github.com/microsoft/onnxruntime/issues/16163",
        lambda: Situation(
            WhisperFeatures(),
            (0.1 * torch.sin(torch.arange(4800) * torch.tensor([[0.05], [0.31]])) + 0.001 * torch.randn(2, 4800),),
            dynamic_shapes={"audio": {1: D}},
        ),
    ),
    Report(
        "stft of 400 samples without a window",
        "https://github.com/microsoft/onnxruntime/issues/14316",
        lambda: Situation(Spectrogram(400, 1.0), (torch.randn(1, 3200),), dynamic_shapes={"waveform": {1: D}}),
    ),
    Report(
        "stft of one signal, with center=False",
        "https://github.com/microsoft/onnxscript/issues/2942",
        lambda: Situation(StftOfOne(), (torch.randn(480),), dynamic_shapes={"signal": {0: D}}),
    ),
    Report(
        "istft of a vocoder",
        "https://github.com/gemelo-ai/vocos/issues/38",
        lambda: Situation(Vocoder(), (torch.randn(2, 11, 6),), dynamic_shapes={"x": {0: D, 1: D}}),
    ),
    Report(
        "overlap-add by fold with a dynamic output size",
        "https://github.com/lucadellalib/focalcodec/issues/9",
        lambda: Situation(OverlapAdd(), (torch.randn(2, 9, 7, 2),), dynamic_shapes={"spectrum": {0: D, 2: D}}),
    ),
    Report(
        "SincConv: clamp between an integer and a float",
        "https://github.com/microsoft/onnxscript/pull/2066",
        lambda: Situation(SincConv(), (torch.randn(2, 1, 400),), dynamic_shapes={"waveforms": {0: D, 2: D}}),
    ),
    Report(
        "Conformer: a mask as long as the longest length",
        "https://github.com/pytorch/pytorch/issues/122956",
        lambda: Situation(
            ConformerLengths(),
            (torch.rand(3, 20, 6), torch.tensor([10, 20, 12])),
            dynamic_shapes={"input": {0: Dim("batch"), 1: Dim("time")}, "lengths": {0: Dim("batch")}},
            fresh=lambda sizes, seed: (
                (
                    torch.rand(sizes["batch"], sizes["time"], 6, generator=torch.Generator().manual_seed(seed)),
                    (torch.arange(sizes["batch"]) + sizes["time"] - 1) % sizes["time"] + 1,
                ),
                {},
            ),
        ),
    ),
    Report(
        "convolution by FFT, block by block",
        "https://github.com/pytorch/pytorch/issues/107588",
        lambda: Situation(FftConv(), (torch.randn(2, 2, 100),), dynamic_shapes={"x": {0: D, 2: D}}),
    ),
    Report(
        "EnCodec: the padding is computed with math.ceil",
        "https://github.com/huggingface/transformers/pull/29913",
        lambda: Situation(CodecConv(), (torch.randn(2, 1, 50),), dynamic_shapes={"x": {0: D, 2: D}}),
    ),
)
