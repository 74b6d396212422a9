"""Quantized modules of torch.ao, which are modules that quantize and dequantize while a model is captured."""

from __future__ import annotations

import pytest
import torch
from roundtrip import travel
from torch import Tensor, nn

from opbridge.capture.quantized import dequantized_modules

quantization = pytest.importorskip("torch.ao.quantization")

pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quantize, self.dequantize = quantization.QuantStub(), quantization.DeQuantStub()
        self.convolution, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()
        self.plain, self.linear = nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.Linear(36, 5)
        self.sum = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.convolution(self.quantize(x)))
        x = self.plain(self.sum.add(x, x))
        return self.dequantize(self.linear(x.flatten(1)))


class Averages(nn.Module):
    """Functions of quantized tensors whose results are rounded: to the same scale, or to one of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.quantize, self.dequantize = quantization.QuantStub(), quantization.DeQuantStub()
        self.convolution, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.convolution(self.quantize(x))
        pooled = nn.functional.adaptive_avg_pool2d(torch.relu(x), 3)
        gate = torch.sigmoid(pooled.mean((2, 3)))
        return self.dequantize(pooled), self.dequantize(gate).sigmoid(), self.dequantize(self.linear(gate))


def static(kind: type[nn.Module] = Classifier) -> nn.Module:
    torch.manual_seed(0)
    model = kind().eval()
    model.qconfig = quantization.get_default_qconfig("x86")
    if kind is Classifier:
        quantization.fuse_modules(model, [["convolution", "relu"]], inplace=True)
    prepared = quantization.prepare(model)
    for _ in range(4):
        prepared(torch.randn(4, 3, 8, 8))
    return quantization.convert(prepared)


def dynamic() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
    return quantization.quantize_dynamic(layers, {nn.Linear})


@pytest.mark.parametrize("make", [static, dynamic])
def test_the_same_numbers_come_out(make) -> None:
    model, x = make(), torch.randn(16, 3, 8, 8)
    modules = list(model.modules())
    expected = model(x)
    with dequantized_modules(model), torch.no_grad():
        found = model(x)
    assert list(model.modules()) == modules
    # A number halfway between two integers may be rounded to the other one.
    assert (found - expected).abs().max() <= (0.02 if make is dynamic else model.linear.scale * 1.01)
    assert torch.isclose(found, expected, atol=1e-4).float().mean() > 0.9


def test_functions_round_where_the_quantized_ones_do() -> None:
    model, x = static(Averages), torch.randn(64, 3, 8, 8)
    expected = model(x)
    with dequantized_modules(model), torch.no_grad():
        found = model(x)
    for one, other in zip(found, expected, strict=True):
        # A number halfway between two integers may be rounded to the other one.
        assert torch.isclose(one, other, rtol=0, atol=1e-6).float().mean() > 0.95


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("make", [static, dynamic])
def test_an_export_quantizes(make) -> None:
    trip = travel(make(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: "batch"},))
    x = torch.randn(5, 3, 8, 8)
    assert abs(trip.run(x)[0] - make()(x).numpy()).max() < 0.05
    if make is static:
        assert {"QuantizeLinear", "DequantizeLinear"} <= set(trip.op_types)
