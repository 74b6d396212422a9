"""State that forward writes, training mode, random numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from side_by_side import Situation
from torch import nn
from torch.distributions import Beta, Dirichlet
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class KeepsHidden(nn.Module):
    """A streaming model that keeps its hidden state in an attribute."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 6), nn.Linear(6, 1)
        self.last_hidden = torch.zeros(2, 6)

    def forward(self, x):
        self.last_hidden = self.cell(x, self.last_hidden)
        return self.out(self.last_hidden).sigmoid()


class KeepsContext(nn.Module):
    """A streaming convolution that keeps the end of the last chunk in a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 5)
        self.register_buffer("cache", torch.zeros(1, 1, 4))

    def forward(self, chunk):
        x = torch.cat([self.cache, chunk], -1)
        self.cache.copy_(x[..., -4:])
        return self.conv(x)


class SmallResNet(nn.Module):
    """A network with batch normalization and dropout."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop, self.fc = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.5), nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(self.drop(F.relu(self.bn(self.conv(x)))).mean((2, 3)))


class BetaActor(nn.Module):
    """A policy that samples its action from a Beta distribution."""

    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4), nn.Softplus())

    def forward(self, x):
        alpha, beta = (self.main(x) + 1).chunk(2, -1)
        return Beta(alpha, beta, validate_args=False).sample(), alpha / (alpha + beta)


class PowerSpherical(nn.Module):
    """Weights drawn from a Dirichlet distribution."""

    def forward(self, concentration):
        return Dirichlet(concentration, validate_args=False).sample()


class SamplesToken(nn.Module):
    """The next token of a language model, from the 5 most probable."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 20)

    def forward(self, hidden):
        values, indices = self.head(hidden).topk(5)
        return indices.gather(1, torch.multinomial(values.softmax(-1), 1))


class RandomDurations(nn.Module):
    """A speech synthesizer whose durations have noise: the length of its output is another in each run."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)

    def forward(self, phonemes):
        x = self.embed(phonemes)
        durations = torch.ceil(torch.exp(torch.randn(phonemes.shape[0]) * 0.8)).long()
        return torch.repeat_interleave(x, durations, dim=0)


STATE = {"opbridge": {"state": True}}

REPORTS = (
    Report(
        "a hidden state in an attribute",
        "https://github.com/pytorch/pytorch/issues/98727",
        lambda: Situation(KeepsHidden(), (torch.randn(2, 4),), calls=2, options=STATE),
    ),
    Report(
        "a cache in a buffer",
        "https://github.com/SonyCSLParis/pesto/pull/38",
        lambda: Situation(KeepsContext(), (torch.randn(1, 1, 16),), calls=2, options=STATE),
    ),
    Report(
        "a model that was left in training mode",
        "https://github.com/microsoft/onnxscript/issues/1791",
        lambda: Situation(
            SmallResNet().train(), (torch.randn(4, 3, 8, 8),), dynamic_shapes={"x": {0: D}}, evaluation=True
        ),
    ),
    Report(
        "samples from a Beta distribution",
        "https://github.com/microsoft/onnxruntime/issues/15016",
        lambda: Situation(BetaActor(), (torch.randn(3, 5),), dynamic_shapes={"x": {0: D}}, random=True),
    ),
    Report(
        "samples from a Dirichlet distribution",
        "https://github.com/pytorch/pytorch/issues/116336",
        lambda: Situation(
            PowerSpherical(), (torch.rand(3, 4) + 0.5,), dynamic_shapes={"concentration": {0: D}}, random=True
        ),
    ),
    Report(
        "multinomial sampling of a token",
        "https://github.com/onnx/onnx/issues/6302",
        lambda: Situation(SamplesToken(), (torch.randn(3, 6),), dynamic_shapes={"hidden": {0: D}}, random=True),
    ),
    Report(
        "an output of random length",
        "https://github.com/OHF-Voice/piper1-gpl/issues/148",
        lambda: Situation(
            RandomDurations(), (torch.randint(0, 20, (7,)),), dynamic_shapes={"phonemes": {0: D}}, random=True
        ),
    ),
)
