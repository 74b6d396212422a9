"""Transforms of real numbers whose length is no power of two: products, as exact as PyTorch's, in every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opbridge

pytestmark = pytest.mark.newest


class Transforms(torch.nn.Module):
    """Back and forth, along several axes, in every normalization, with odd and even lengths."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for norm in ("backward", "ortho", "forward"):
            for length in (30, 31):
                spectrum = torch.fft.rfft(x, length, dim=1, norm=norm)
                found += [torch.view_as_real(spectrum), torch.fft.irfft(spectrum, length, dim=1, norm=norm)]
        found.append(torch.view_as_real(torch.fft.ihfft(x, 12).resolve_conj()))
        return tuple(found)


class Filter(torch.nn.Module):
    """A mask on the spectrum of speech, as in noise suppression."""

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(60)
        spectrum = torch.stft(signal, 60, 20, window=window, return_complex=True)
        mask = torch.sigmoid(spectrum.abs() - 1)
        return torch.istft(spectrum * mask, 60, 20, window=window)


CASES = {"transforms": (Transforms(), torch.randn(3, 40, 5)), "filter": (Filter(), torch.randn(2, 300))}


@pytest.mark.quick(every=99)
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", CASES)
def test_a_product_in_float32(name: str, engine: str, tmp_path: Path) -> None:
    module, x = CASES[name]
    shapes = ({0: "n"},)
    bundle = opbridge.export(module, (x,), dynamic_shapes=shapes, path=tmp_path / "b", engines=(engine,))
    assert bundle.verified
    assert not any(operator["target"].startswith("aten::_fft") for operator in bundle.manifest["operators"])
