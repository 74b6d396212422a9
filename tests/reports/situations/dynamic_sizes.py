"""Sizes that were declared dynamic, and models that compute with them in Python."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import torchvision
from side_by_side import Situation
from torch import nn
from torch.export import Dim

from situations.report import Report

D = Dim.DYNAMIC


class Resample(nn.Module):
    """From 8 to 3 samples per unit of time with a windowed sinc; the length of the result is rounded up in a tensor."""

    def __init__(self, orig=8, new=3):
        super().__init__()
        self.orig, self.new, self.width = orig, new, 12
        time = torch.arange(-self.width, self.width + orig)[None, None] / orig - torch.arange(new)[:, None, None] / new
        time = (time * 2.5).clamp(-6, 6)
        self.register_buffer("kernel", torch.sinc(time) * torch.cos(time * math.pi / 12) ** 2 / orig)

    def forward(self, waveform):
        length = waveform.shape[-1]
        padded = F.pad(waveform, (self.width, self.width + self.orig))
        resampled = F.conv1d(padded[:, None], self.kernel, stride=self.orig).transpose(1, 2).flatten(1)
        target_length = torch.ceil(torch.as_tensor(self.new * length / self.orig)).long()
        return resampled[..., :target_length]


class ResampleFrac(nn.Module):
    """The same with the length rounded by int()."""

    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 2, 15, stride=5, padding=7, bias=False)

    def forward(self, x):
        y = self.filters(x[:, None]).transpose(1, 2).flatten(1)
        return y[..., : int(2 * x.shape[-1] / 5)]


class WindowReverse(nn.Module):
    """The batch is computed back from the number of windows with int(a / b)."""

    def forward(self, windows):
        size, height, width = 4, 8, 8
        batch = int(windows.shape[0] / (height * width / size / size))
        x = windows.view(batch, height // size, width // size, size, size, -1)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, -1)


class ShiftedWindows(nn.Module):
    """A feature map is padded to a multiple of the window, rolled, cut in windows, and put together again."""

    def __init__(self, channels=6, window=4):
        super().__init__()
        self.window, self.qkv = window, nn.Linear(channels, channels)

    def forward(self, x):
        batch, height, width, channels = x.shape
        w = self.window
        padded = F.pad(x, (0, 0, 0, (w - width % w) % w, 0, (w - height % w) % w))
        rolled = torch.roll(padded, (-(w // 2), -(w // 2)), (1, 2))
        h, v = rolled.shape[1] // w, rolled.shape[2] // w
        windows = rolled.view(batch, h, w, v, w, channels).transpose(2, 3).reshape(-1, w * w, channels)
        windows = windows + F.softmax(self.qkv(windows), 1)
        x = windows.view(batch, h, v, w, w, channels).transpose(2, 3).reshape(batch, h * w, v * w, channels)
        return torch.roll(x, (w // 2, w // 2), (1, 2))[:, :height, :width]


class FlattensImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)

    def forward(self, x):
        x = self.conv(x)
        height, width = x.shape[2:]
        return x.view(-1, 8, height * width).transpose(1, 2)


class ScaledBySize(nn.Module):
    """Positions from 0 to 1: a Python float of a size scales a tensor."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(5, 4, 1)

    def forward(self, image):
        batch, _, height, width = image.shape
        ys = torch.arange(height) / float(height)
        xs = torch.arange(width) / float(width)
        grid = torch.stack(torch.meshgrid(ys, xs, indexing="ij"))
        return self.mix(torch.cat([image, grid.expand(batch, -1, -1, -1)], 1))


class PadsTo32(nn.Module):
    """A small U-Net that pads its input to a multiple of 32 and crops its output."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3 if i == 0 else 4, 4, 3, 2, 1) for i in range(5)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(4, 4, 2, 2) for _ in range(5)])

    def forward(self, image):
        height, width = image.shape[-2:]
        x = F.pad(image, (0, (32 - width % 32) % 32, 0, (32 - height % 32) % 32))
        kept = []
        for conv in self.down:
            x = F.relu(conv(x))
            kept.append(x)
        for conv, other in zip(self.up, reversed(kept), strict=True):
            x = conv(x + other)
        return x[..., :height, :width]


class DividesByNumel(nn.Module):
    def forward(self, x):
        if x.numel() == 0:
            return x.cos()
        return (x - x.sum() / x.numel()) / math.sqrt(x.numel())


class PairwiseLoop(nn.Module):
    """Distances, one row at a time."""

    def forward(self, x, y):
        distances = torch.empty((x.shape[0], y.shape[0]), dtype=x.dtype)
        for i in range(x.shape[0]):
            distances[i, :] = (y - x[i : i + 1]).square().sum(1).sqrt()
        return distances


class LoopsOverSteps(nn.Module):
    """A decoder that is unrolled over the time steps of its input."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(6, 6)

    def forward(self, x):
        state, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.size(1)):
            state = torch.tanh(self.step(state) + x[:, t])
            outputs.append(state)
        return torch.stack(outputs, 1)


class SwitchesOnLength(nn.Module):
    """Long inputs are pooled before they are projected."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 4)

    def forward(self, tokens):
        if tokens.shape[1] > 12:
            tokens = F.avg_pool1d(tokens.transpose(1, 2), 2, ceil_mode=True).transpose(1, 2)
        return self.project(tokens).mean(1)


class PowerOfTwo(nn.Module):
    """Filters an image in the frequency domain, with a check of its sizes as diffusion models have it."""

    def forward(self, x):
        height, width = x.shape[-2:]
        dtype = x.dtype
        if (width & (width - 1)) != 0 or (height & (height - 1)) != 0:
            x = x.to(torch.float32)
        frequencies = torch.fft.fftshift(torch.fft.fftn(x, dim=(-2, -1)), dim=(-2, -1))
        mask = torch.ones(frequencies.shape)
        row, column = height // 2, width // 2
        mask[..., row - 2 : row + 2, column - 2 : column + 2] = 1.4
        frequencies = torch.fft.ifftshift(frequencies * mask, dim=(-2, -1))
        return torch.fft.ifftn(frequencies, dim=(-2, -1)).real.to(dtype)


class ViewBySecond(nn.Module):
    def forward(self, x):
        return F.softmax(x.view(x.size(1), -1), dim=0)


class BertLike(nn.Module):
    """A text encoder with an additive mask, whose batch has a range."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask):
        batch, length = input_ids.shape
        x = self.words(input_ids) + self.positions(torch.arange(length))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        q, k, v = (f(x).view(batch, length, 4, 4).transpose(1, 2) for f in (self.query, self.key, self.value))
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(batch, length, 16)
        return self.head(self.norm(x)[:, 0])


class ReplicatesItsHeight(nn.Module):
    def forward(self, image):
        return F.pad(image, (0, 0, 0, image.shape[2]), mode="replicate")


class LinspaceOfSize(nn.Module):
    """Position ids between 0 and size - 1, as diffusion transformers make them."""

    def forward(self, latent):
        height, width = latent.shape[-2:]
        ids = torch.zeros(height, width, 3)
        ids[..., 1] = ids[..., 1] + torch.linspace(0, height - 1, steps=height)[:, None]
        ids[..., 2] = ids[..., 2] + torch.linspace(0, width - 1, steps=width)[None, :]
        return latent.flatten(2).transpose(1, 2), ids.flatten(0, 1)


class PyramidPooling(nn.Module):
    """Pools an image of any size to 1, 2, 3 and 6 cells."""

    def __init__(self):
        super().__init__()
        self.pools = nn.ModuleList([nn.AdaptiveAvgPool2d(size) for size in (1, 2, 3, 6)])
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = self.conv(x)
        pooled = [F.interpolate(pool(x), x.shape[2:], mode="bilinear", align_corners=False) for pool in self.pools]
        return torch.cat([x, *pooled], 1)


class UnfoldFold(nn.Module):
    """Patches of one map beside the cells of a coarser one, folded back (PaDiM)."""

    def forward(self, x, y):
        batch, channels, height, width = x.shape
        ratio = height // y.shape[2]
        patches = F.unfold(x, kernel_size=2, stride=2).view(batch, channels, -1, y.shape[2], y.shape[3])
        joined = [torch.cat((patches[:, :, i], y), 1) for i in range(4)]
        stacked = torch.stack(joined, 2).view(batch, -1, y.shape[2] * y.shape[3])
        return F.fold(stacked, output_size=(height, width), kernel_size=2, stride=2) * ratio


class ChunksBatch(nn.Module):
    def forward(self, x):
        first, *rest = torch.chunk(x, 3, 0)
        return first * 2, torch.cat(rest)


class MinimumOfRange(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv(x)).mean((2, 3))


def circular_conv() -> nn.Module:
    convs = [nn.Conv2d(3, 6, 7, padding=3, padding_mode="circular"), nn.Conv2d(6, 6, 3, 2, 1, padding_mode="circular")]
    return nn.Sequential(convs[0], nn.GELU(), convs[1])


IMAGES = {0: D, 2: D, 3: D}

REPORTS = (
    Report(
        "Resample: the length becomes a tensor",
        "https://github.com/pytorch/audio/pull/3473",
        lambda: Situation(Resample(), (torch.randn(2, 96),), dynamic_shapes={"waveform": {0: D, 1: D}}),
    ),
    Report(
        "ResampleFrac: the length goes through int()",
        "https://github.com/adefossez/julius/pull/17",
        lambda: Situation(ResampleFrac(), (torch.randn(2, 100),), dynamic_shapes={"x": {0: D, 1: D}}),
    ),
    Report(
        "window_reverse: int(size / size)",
        "https://github.com/NVlabs/FasterViT/issues/12",
        lambda: Situation(WindowReverse(), (torch.randn(12, 4, 4, 5),), dynamic_shapes={"windows": {0: 4 * Dim("b")}}),
    ),
    Report(
        "Swin windows with dynamic height and width",
        "https://github.com/huggingface/pytorch-image-models/issues/1844",
        lambda: Situation(ShiftedWindows(), (torch.randn(2, 10, 13, 6),), dynamic_shapes={"x": {0: D, 1: D, 2: D}}),
    ),
    Report(
        "Swin: view(-1, H * W, C) recorded as a constant",
        "https://github.com/microsoft/onnxruntime/issues/19280",
        lambda: Situation(FlattensImage().eval(), (torch.randn(2, 3, 32, 48),), dynamic_shapes={"x": IMAGES}),
    ),
    Report(
        "float(size): sym_float",
        "https://github.com/pytorch/pytorch/issues/136089",
        lambda: Situation(ScaledBySize(), (torch.randn(2, 3, 12, 15),), dynamic_shapes={"image": IMAGES}),
    ),
    Report(
        "padding to multiples of 32",
        "https://github.com/pytorch/pytorch/issues/136089",
        lambda: Situation(PadsTo32(), (torch.randn(2, 3, 40, 70),), dynamic_shapes={"image": IMAGES}),
    ),
    Report(
        "numel() in a branch and as a divisor",
        "https://github.com/pytorch/pytorch/issues/93577",
        lambda: Situation(DividesByNumel(), (torch.randn(6, 4),), dynamic_shapes={"x": {0: D}}),
    ),
    Report(
        "a Python loop over the rows of an input",
        "https://github.com/pytorch/pytorch/issues/148980",
        lambda: Situation(
            PairwiseLoop(),
            (torch.randn(3, 4), torch.randn(5, 4)),
            dynamic_shapes={"x": {0: Dim("x_rows"), 1: Dim("dim")}, "y": {0: Dim("y_rows"), 1: Dim("dim")}},
        ),
    ),
    Report(
        "a Python loop over time steps",
        "https://github.com/pytorch/executorch/issues/1379",
        lambda: Situation(LoopsOverSteps(), (torch.randn(2, 7, 6),), dynamic_shapes={"x": {0: D, 1: D}}),
    ),
    Report(
        "a branch on a size",
        "https://github.com/pytorch/pytorch/issues/117655",
        lambda: Situation(
            SwitchesOnLength(), (torch.randn(2, 10, 8),), dynamic_shapes={"tokens": {0: D, 1: Dim("length", max=64)}}
        ),
    ),
    Report(
        "FFT filter that asks for powers of two",
        "https://github.com/onnx/onnx/issues/4845",
        lambda: Situation(PowerOfTwo(), (torch.randn(2, 3, 12, 16),), dynamic_shapes={"x": {0: D, 2: D}}),
    ),
    Report(
        "view by another size, one dimension dynamic",
        "https://github.com/pytorch/pytorch/issues/126607",
        lambda: Situation(ViewBySecond(), (torch.rand(12, 5, 4),), dynamic_shapes={"x": {0: Dim("batch", max=100)}}),
    ),
    Report(
        "ResNet with a dynamic batch, exported at batch 1",
        "https://github.com/pytorch/pytorch/issues/157621",
        lambda: Situation(
            torchvision.models.resnet18(num_classes=10).eval(),
            (torch.randn(1, 3, 64, 64),),
            dynamic_shapes={"x": {0: D}},
        ),
    ),
    Report(
        "ResNet with Dim('batch', max=10), exported at batch 1",
        "https://github.com/pytorch/pytorch/issues/133653",
        lambda: Situation(
            torchvision.models.resnet18(num_classes=10).eval(),
            (torch.randn(1, 3, 64, 64),),
            dynamic_shapes={"x": {0: Dim("batch", min=1, max=10)}},
        ),
    ),
    Report(
        "BERT with a batch from 2 to 10",
        "https://github.com/pytorch/pytorch/issues/150842",
        lambda: Situation(
            BertLike(),
            (torch.randint(0, 50, (2, 7)), torch.tensor([[1] * 7, [1] * 5 + [0] * 2])),
            dynamic_shapes={
                "input_ids": {0: Dim("batch", min=2, max=10), 1: Dim("sequence", max=32)},
                "attention_mask": {0: Dim("batch", min=2, max=10), 1: Dim("sequence", max=32)},
            },
        ),
    ),
    Report(
        "the example is at the lower bound of its range",
        "https://github.com/pytorch/pytorch/issues/176349",
        lambda: Situation(
            MinimumOfRange(),
            (torch.randn(1, 3, 16, 16),),
            dynamic_shapes={"x": {0: Dim("batch", min=1, max=8), 2: Dim("height", min=16, max=64)}},
        ),
    ),
    Report(
        "replicate padding by a dynamic size",
        "https://github.com/microsoft/onnxscript/issues/2539",
        lambda: Situation(ReplicatesItsHeight(), (torch.randn(1, 2, 5, 4),), dynamic_shapes={"image": {2: D}}),
    ),
    Report(
        "circular padding with dynamic height and width",
        "https://github.com/pytorch/vision/issues/7541",
        lambda: Situation(circular_conv().eval(), (torch.randn(2, 3, 16, 20),), dynamic_shapes={"input": IMAGES}),
    ),
    Report(
        "linspace(0, size - 1, steps=size)",
        "https://github.com/Comfy-Org/ComfyUI/pull/5490",
        lambda: Situation(LinspaceOfSize(), (torch.randn(1, 4, 6, 9),), dynamic_shapes={"latent": {2: D, 3: D}}),
    ),
    Report(
        "adaptive pooling to 7 x 7 from 12 x 12",
        "https://github.com/pytorch/pytorch/issues/109370",
        lambda: Situation(nn.AdaptiveAvgPool2d((7, 7)), (torch.randn(1, 3, 12, 12),), dynamic_shapes=({0: D},)),
    ),
    Report(
        "adaptive pooling of any image size",
        "https://github.com/pytorch/pytorch/issues/120477",
        lambda: Situation(PyramidPooling().eval(), (torch.randn(2, 4, 13, 17),), dynamic_shapes={"x": IMAGES}),
    ),
    Report(
        "unfold and fold of dynamic maps",
        "https://github.com/pytorch/pytorch/issues/105134",
        lambda: Situation(
            UnfoldFold(),
            (torch.randn(3, 2, 8, 12), torch.randn(3, 4, 4, 6)),
            dynamic_shapes={
                "x": {0: Dim("b"), 2: 2 * Dim("h"), 3: 2 * Dim("w")},
                "y": {0: Dim("b"), 2: Dim("h"), 3: Dim("w")},
            },
        ),
    ),
    Report(
        "chunk along a dynamic dimension",
        "https://github.com/pytorch/pytorch/issues/134663",
        lambda: Situation(ChunksBatch(), (torch.randn(6, 4),), dynamic_shapes={"x": {0: 3 * Dim("third")}}),
    ),
)
