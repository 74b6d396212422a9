"""Models that were quantized in PyTorch before the export.

A step of a quantized output is stated as the tolerance: which of two neighbours a value on the edge is rounded to
depends on the order of a sum.
"""

from __future__ import annotations

import torch
import torch.ao.quantization as quantization
from side_by_side import Situation
from torch import nn
from torch.export import Dim
from torch.utils import mkldnn

from situations.report import Report

D = Dim.DYNAMIC


class ConvBnRelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv1, self.bn1, self.relu1 = nn.Conv2d(3, 6, 5), nn.BatchNorm2d(6), nn.ReLU()

    def forward(self, x):
        return self.dequant(self.relu1(self.bn1(self.conv1(self.quant(x)))))


class ConvThenLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.linear = nn.Conv2d(1, 4, 3), nn.Linear(4, 5)

    def forward(self, x):
        x = self.conv(self.quant(x))
        return self.dequant(self.linear(x.mean((2, 3))))


class Credit(nn.Module):
    """The network of the report: linear layers with ReLU."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.dequant(self.layers(self.quant(x)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.gru(x)[0])


def trained_with_fake_quantization(*, observes: bool) -> nn.Module:
    model = ConvBnRelu().train()
    model.qconfig = quantization.get_default_qat_qconfig("qnnpack")
    quantization.prepare_qat(model, inplace=True)
    for _ in range(3):
        model(torch.randn(2, 3, 12, 12))
    if not observes:
        model.apply(quantization.disable_observer)
    return model.eval()


def converted(model: nn.Module, example: torch.Tensor, *fused: list[str]) -> nn.Module:
    """Calibrated and converted in eager mode."""
    model.eval()
    if fused:
        model = quantization.fuse_modules(model, list(fused))
    model.qconfig = quantization.get_default_qconfig("x86")
    quantization.prepare(model, inplace=True)
    for _ in range(4):
        model(torch.randn_like(example))
    return quantization.convert(model)


def dynamically(model: nn.Module, *kinds: type[nn.Module]) -> nn.Module:
    return quantization.quantize_dynamic(model.eval(), set(kinds), dtype=torch.qint8)


IMAGE, PIXELS, ROW = (2, 3, 12, 12), (2, 1, 8, 8), (3, 12)

REPORTS = (
    Report(
        "QAT with observers that still observe",
        "https://github.com/pytorch/pytorch/issues/108828",
        lambda: Situation(
            trained_with_fake_quantization(observes=True),
            (torch.randn(IMAGE),),
            dynamic_shapes={"x": {0: D}},
            tolerance=0.05,
        ),
    ),
    Report(
        "QAT with observers turned off",
        "https://github.com/pytorch/pytorch/issues/102694",
        lambda: Situation(
            trained_with_fake_quantization(observes=False),
            (torch.randn(IMAGE),),
            dynamic_shapes={"x": {0: D}},
            tolerance=0.05,
        ),
    ),
    Report(
        "quantize_dynamic of linear layers",
        "https://github.com/pytorch/pytorch/issues/123555",
        lambda: Situation(
            dynamically(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3)), nn.Linear),
            (torch.randn(ROW),),
            dynamic_shapes={"input": {0: D}},
            tolerance=0.03,
        ),
    ),
    Report(
        "quantize_dynamic of a GRU",
        "https://github.com/microsoft/onnxscript/issues/2074",
        lambda: Situation(
            dynamically(Tagger(), nn.GRU, nn.Linear),
            (torch.randn(2, 7, 8),),
            dynamic_shapes={"x": {0: D, 1: D}},
            tolerance=0.03,
        ),
    ),
    Report(
        "quantized::linear_relu",
        "https://github.com/pytorch/pytorch/issues/107522",
        lambda: Situation(
            converted(Credit(), torch.randn(ROW), ["layers.0", "layers.1"]),
            (torch.randn(ROW),),
            dynamic_shapes={"x": {0: D}},
            tolerance=0.05,
        ),
    ),
    Report(
        "quantized convolution and linear layer",
        "https://github.com/pytorch/pytorch/issues/137111",
        lambda: Situation(
            converted(ConvThenLinear(), torch.randn(PIXELS)),
            (torch.randn(PIXELS),),
            dynamic_shapes={"x": {0: D}},
            tolerance=0.05,
        ),
    ),
    Report(
        "weights in MKL-DNN's layout",
        "https://github.com/pytorch/pytorch/issues/114188",
        lambda: Situation(
            mkldnn.to_mkldnn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()), (torch.randn(2, 3, 8, 8),)
        ),
    ),
)
