"""torchaudio's recursive filter, replaced by a loop; torchaudio is not installed, so the test has its function."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import Tensor

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog

FILTERING = "torchaudio.functional.filtering"


def _lfilter(waveform: Tensor, a_coeffs: Tensor, b_coeffs: Tensor) -> Tensor:
    """The difference equation, sample by sample."""
    result = torch.zeros_like(waveform)
    for time in range(waveform.shape[2]):
        for lag in range(a_coeffs.shape[1]):
            if lag <= time:
                result[:, :, time] += b_coeffs[:, lag] * waveform[:, :, time - lag]
                result[:, :, time] -= (lag > 0) * a_coeffs[:, lag] * result[:, :, time - lag]
        result[:, :, time] /= a_coeffs[:, 0]
    return result


class Filter(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a = torch.tensor([[2.0, -0.9, 0.3], [1.0, 0.2, -0.1]])
        b = torch.tensor([[0.5, 0.1, -0.2], [1.0, 0.0, 0.4]])
        return sys.modules[FILTERING]._lfilter(x, a, b)


@pytest.mark.slow
def test_a_recursive_filter_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchaudio", "torchaudio.functional", FILTERING):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    vars(sys.modules["torchaudio"])["functional"] = sys.modules["torchaudio.functional"]
    vars(sys.modules["torchaudio.functional"])["filtering"] = sys.modules[FILTERING]
    vars(sys.modules[FILTERING])["_lfilter"] = _lfilter
    rewrites = [spec for spec in Catalog.load().rewrites() if spec.target == f"{FILTERING}._lfilter"]
    time = torch.export.Dim.DYNAMIC
    found = capture(Filter(), (torch.randn(3, 2, 9),), dynamic_shapes={"x": {2: time}}, rewrites=rewrites)
    for length in (9, 2, 14):
        x = torch.randn(3, 2, length)
        torch.testing.assert_close(found.program.module()(x), Filter()(x))
