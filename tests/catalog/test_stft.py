"""The short-time Fourier transform: as exact as PyTorch's at every length, and with every option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402

pytestmark = pytest.mark.newest


def _window(size: int) -> torch.Tensor:
    return torch.hann_window(size)


OPTIONS: dict[str, dict[str, Any]] = {
    "as Whisper has it": {"n_fft": 400, "hop_length": 160, "window": _window(400)},
    "without a window": {"n_fft": 31, "hop_length": 7},
    "a shorter window": {"n_fft": 60, "win_length": 41, "window": _window(41), "pad_mode": "constant"},
    "a shorter frame": {"n_fft": 60, "win_length": 40},
    "normalized": {"n_fft": 60, "window": _window(60), "normalized": True, "center": False},
    "all frequencies": {"n_fft": 60, "window": _window(60), "onesided": False},
    "aligned to the window": {"n_fft": 60, "center": False, "win_length": 40, "align_to_window": True},
    "a power of two": {"n_fft": 64, "window": _window(64)},
    "the engine's own": {"n_fft": 1024, "window": _window(1024)},
    "a power of two, aligned": {"n_fft": 64, "center": False, "win_length": 40, "align_to_window": True},
    "of long frames": {"n_fft": 2100, "window": _window(2100)},
    "a complex window": {"n_fft": 60, "window": torch.polar(_window(60), torch.arange(60.0)), "onesided": False},
    "a window of another type": {"n_fft": 64, "window": _window(64).double()},
}


class Spectra(torch.nn.Module):
    """The spectra of every input with every option, in pairs."""

    def __init__(self, options: list[dict[str, Any]]) -> None:
        super().__init__()
        self.options = options

    def forward(self, *signals: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectra = []
        for options in self.options:
            for signal in signals:
                both = {"onesided": False} if signal.is_complex() else {}
                spectra.append(torch.view_as_real(torch.stft(signal, return_complex=True, **{**options, **both})))
        return tuple(spectra)


def _signals(length: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(length)
    return torch.randn(2, length), torch.randn(length), torch.randn(2, length, dtype=torch.complex64)


def _wide(value: Any) -> Any:
    return value.to(torch.promote_types(value.dtype, torch.float64)) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["as Whisper has it", "the engine's own"], id="two", marks=pytest.mark.slow),
        pytest.param(list(OPTIONS), id="all", marks=pytest.mark.sweep),
    ],
)
def test_spectra_are_as_exact_as_those_of_pytorch(names: list[str], tmp_path: Path) -> None:
    options, rows = [OPTIONS[name] for name in names], torch.export.Dim.DYNAMIC
    bundle = opbridge.export(
        Spectra(options),
        _signals(2500),
        path=tmp_path / "bundle",
        dynamic_shapes=(({1: rows}, {0: rows}, {1: rows}),),
        verify=False,
    )
    signals = _signals(2737)
    feeds = [torch.view_as_real(signal).numpy() if signal.is_complex() else signal.numpy() for signal in signals]
    found = opbridge.load(bundle.path)(*feeds)
    own = Spectra(options)(*signals)
    wide = Spectra([{key: _wide(value) for key, value in chosen.items()} for chosen in options])(*map(_wide, signals))
    for number, (result, one, exact) in enumerate(zip(found, own, wide, strict=True)):
        name = f"{names[number // len(signals)]}, input {number % len(signals)}"
        assert (result.shape, result.dtype) == (tuple(one.shape), one.numpy().dtype), name
        error = np.abs(result - exact.numpy()).max()
        times = 16 if "the engine's own" in name else 8
        assert error <= times * max(float((one - exact).abs().max()), 1e-13), name


def test_the_engines_own_transform_is_used_for_long_frames_where_it_is_exact(tmp_path: Path) -> None:
    for name, operator in (("as Whisper has it", "Conv"), ("the engine's own", "STFT")):
        bundle = opbridge.export(
            Spectra([OPTIONS[name]]), (torch.randn(1, 2048),), path=tmp_path / operator, verify=False
        )
        model = ir.load(bundle.model_file("onnxruntime"))
        assert {node.op_type for node in model.graph} & {"Conv", "STFT", "DFT"} == {operator}


class Hamming(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        windows = torch.hamming_window(9), torch.hamming_window(9, False), torch.hamming_window(9, True, 0.6)
        others = torch.hamming_window(9, False, 0.6, 0.3), torch.hamming_window(9, dtype=torch.float64)
        return tuple(x * window for window in (*windows, *others))


def test_a_hamming_window_has_the_coefficients_of_pytorch(tmp_path: Path) -> None:
    x = torch.ones(9)
    found = opbridge.load(opbridge.export(Hamming(), (x,), path=tmp_path / "bundle", verify=False).path)(x.numpy())
    for result, expected in zip(found, Hamming()(x), strict=True):
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-6)
