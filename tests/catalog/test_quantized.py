"""Models of quantization-aware training, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
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


@pytest.mark.sweep
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


SCALES = torch.tensor([0.1, 0.03])
RANGES = [(-128, 127), (-127, 127), (0, 127), (-5, 9), (-32768, 32767)]
_LEVELS = torch.ops.quantized_decomposed


def calls(low: int, high: int) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    dtype = torch.uint8 if low == 0 else torch.int8
    zeros = torch.tensor([3, 9 if low == 0 else -1], dtype=torch.int32)
    fake_by_tensors = torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    found = {
        "fake": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, low, high),
        "fake by channel": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, zeros, 1, low, high),
        "fake by tensors": lambda x: fake_by_tensors(x, SCALES[:1], zeros[:1], torch.ones(1), low, high)[0],
        "levels": lambda x: _LEVELS.quantize_per_tensor(x, 0.1, 3, low, high, dtype),
        "levels by tensors": lambda x: _LEVELS.quantize_per_tensor(x, SCALES[0], zeros[0], low, high, dtype),
        "levels by channel": lambda x: _LEVELS.quantize_per_channel(x, SCALES, zeros, 1, low, high, dtype),
    }
    return {name: call for name, call in found.items() if high < 256 or name.startswith("fake")}


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", calls(0, 127))
def test_quantization_to_any_range(name: str) -> None:
    for limits in RANGES:
        call = calls(*limits).get(name)
        if call is not None:
            trip = travel(call, (torch.randn(3, 2, 5) * 20,), dynamic_shapes=({0: "n"},))
            trip.check(torch.randn(4, 2, 5) * 20)
            is_qdq = {"QuantizeLinear", "DequantizeLinear"} <= set(trip.op_types)
            assert is_qdq == (name in ("fake", "fake by channel") and limits != RANGES[-1])
