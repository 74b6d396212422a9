"""Models of quantization-aware training, against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from roundtrip import travel
from torch import Tensor

from opbridge.catalog.ops.nn.fused_fake_quantize import fused_fake_quantize

ON, OFF = torch.tensor([1]), torch.tensor([0])
FUSED = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional


def _one(low: float, high: float) -> tuple[Tensor, ...]:
    return (
        torch.tensor([float(low)]),
        torch.tensor([float(high)]),
        torch.tensor([0.02]),
        torch.tensor([7], dtype=torch.int32),
    )


ROWS = (torch.full((3,), -0.5), torch.full((3,), 0.7), torch.full((3,), 0.01), torch.zeros(3, dtype=torch.int32))

CALLS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "observer off": (1.0, (OFF, ON, *_one(-1, 1), 0.01, 0, 127, -1)),
    "observer on": (1.0, (ON, ON, *_one(-1, 1), 0.01, 0, 127, -1)),
    "first call": (1.0, (ON, ON, *_one(math.inf, -math.inf), 0.01, -128, 127, -1, False, True)),
    "observing only": (1.0, (ON, OFF, *_one(-1, 1), 0.5, 0, 255, -1)),
    "rows": (1.0, (ON, ON, *ROWS, 0.01, -128, 127, 0, True, True)),
    "small": (1e-6, (ON, ON, *_one(0, 0), 0.9, 0, 255, -1)),
    "zeros": (0.0, (ON, ON, *_one(0, 0), 0.9, 0, 255, -1)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("sign", ["both", "positive", "negative"])
def test_the_range_moves_and_elements_are_rounded(name: str, sign: str) -> None:
    torch.manual_seed(0)
    scale, arguments = CALLS[name]
    x = torch.randn(3, 4, 5) * scale
    x = {"both": x, "positive": x.abs(), "negative": -x.abs()}[sign]
    for found, expected in zip(fused_fake_quantize(x, *arguments), FUSED(x, *arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("observes", [False, True])
def test_a_model_of_quantization_aware_training(observes: bool) -> None:
    quantization = pytest.importorskip("torch.ao.quantization")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    model.train().qconfig = quantization.get_default_qat_qconfig("x86")
    quantization.prepare_qat(model, inplace=True)
    for _ in range(3):
        model(torch.randn(2, 3, 8, 8))
    model.eval()
    if not observes:
        model.apply(quantization.disable_observer)
    x = torch.randn(2, 3, 8, 8)
    trip = travel(model, (x,))
    with torch.no_grad():
        expected = model(x)
    # A rounding decision may differ at a tie.
    assert abs(trip.run(x)[0] - expected.numpy()).max() < 0.05
