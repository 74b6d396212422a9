"""The models that faults are planted in: small, of several kinds of layers, and well-conditioned."""

from __future__ import annotations

from typing import Any

import fault_operators
import torch
from torch import Tensor, nn

from opbridge.capture.entry import Entry

__all__ = [
    *("average", "counts", "detector", "half_norm", "image", "mixer", "scaled", "sequence", "steps", "suppressor"),
    "with_kernel",
]

DYNAMIC = torch.export.Dim.DYNAMIC


def _entry(model: nn.Module, *args: Tensor, dynamic: Any = None) -> Entry:
    return Entry(type(model).__name__, model.eval(), args, dynamic_shapes=dynamic)


class Image(nn.Module):
    """Convolutions, as a classifier of images has them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.norm, self.head = nn.GroupNorm(2, 8), nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first((image - 0.45) / self.deviation)
        x = nn.functional.leaky_relu(x, 0.2)
        x = nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        x = self.norm(self.second(x))
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        x = nn.functional.gelu(x, approximate="tanh")
        return self.head((x - x.amin((2, 3), keepdim=True)).mean((2, 3)))


class Sequence(nn.Module):
    """Attention over tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(60, 16), nn.Linear(16, 4)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.LayerNorm(16)

    def forward(self, tokens: Tensor, keep: Tensor) -> Tensor:
        x = self.embed(tokens)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4.0
        scores = torch.where(keep[:, None, :], scores, -1e4)
        x = self.norm(x + torch.softmax(scores, -1) @ self.value(x))
        return self.head(torch.tanh(x) - 0.5 * x)


class Mixer(nn.Module):
    """Linear layers along both axes of square data."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.columns, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.sin(self.rows(x)) @ self.columns.weight
        x = torch.exp(-x.transpose(1, 2).abs())
        return self.head(x * self.columns.bias)


class HalfNorm(nn.Module):
    """A network in float16 whose root mean square is taken in float32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
        self.half()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        wide = x.float()
        mean = wide.square().mean(-1, keepdim=True)
        return self.second((wide * torch.rsqrt(mean + 1e-6)).half())


class Counts(nn.Module):
    """Integer arithmetic: the cell of a grid that a position lies in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weights", torch.rand(64))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cells = torch.div(positions, 4, rounding_mode="floor")
        return cells, self.weights[(cells + 16).clamp(0, 63)] * 2.0


class Steps(nn.Module):
    """Quantization of whole numbers to half as many steps."""

    def forward(self, levels: Tensor) -> Tensor:
        return torch.round(levels / 2) * 2 + 1


class Scaled(nn.Module):
    """A convolution in units so small that its weights can't be given in those of the input.

    ONNX Runtime multiplies the scale after the convolution into its weights, which overflow. Where the result of the
    convolution is an output too, the two stay apart.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 4, 3, bias=False)
        with torch.no_grad():
            self.first.weight.mul_(2.0**90)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first(image * 2.0**-100) * 2.0**100
        return torch.tanh(x * 2.0**-90)


class Average(nn.Module):
    """A mean over a dynamic dimension; of nothing it is NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.mean(0)) + 1


class Detector(nn.Module):
    """Queries of the best places of an image, as RT-DETR chooses them with random weights.

    The scores of even places are better than those of odd ones by far, and differ among each other by rounding errors.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features, self.score = nn.Conv2d(3, 16, 3, 2, 1), nn.Linear(16, 1)
        self.corners, self.labels = nn.Linear(16, 4), nn.Linear(16, 5)
        self.norm, self.mix = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.tanh(self.features(image)).flatten(2).transpose(1, 2)
        even = (torch.arange(x.shape[1]) % 2 == 0).to(x.dtype)
        scores = even + 1e-7 * self.score(x)[..., 0]
        best = scores.topk(6)[1].unsqueeze(-1)
        boxes = torch.sigmoid(self.corners(x)).gather(1, best.expand(-1, -1, 4))
        queries = x.gather(1, best.expand(-1, -1, 16))
        attended = torch.softmax(queries @ queries.transpose(1, 2), -1) @ self.mix(queries)
        return self.labels(self.norm(queries + attended)), boxes


class Suppressor(nn.Module):
    """Boxes with nearly equal scores, as of YOLO with random weights, and the suppression of those that overlap."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features, self.head = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 9, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from torchvision.ops import nms

        x = self.head(torch.tanh(self.features(image))).flatten(2)[0].transpose(0, 1)
        scores, labels = torch.sigmoid(1e-6 * x[:, 4:]).max(1)
        places = torch.arange(x.shape[0])
        corner = torch.stack([places % 12, places // 12], 1) * 2.0 + torch.sigmoid(x[:, :2])
        boxes = torch.cat([corner, corner + 2 + 4 * torch.sigmoid(x[:, 2:4])], 1)
        kept = nms(boxes, scores, 0.4)
        return boxes[kept], scores[kept], (x[:, :4] * (1 + labels[:, None]))[kept]


class WithKernel(nn.Module):
    """One operator with a kernel, between others."""

    def __init__(self, operator: Any, reduces: bool = False) -> None:
        super().__init__()
        self.operator, self.reduces = operator, reduces

    def forward(self, x: Tensor) -> Tensor:
        y = self.operator(x * 0.5)
        return y - 0.25 if self.reduces else torch.cat([y, x], -1)


def image() -> Entry:
    torch.manual_seed(1)
    return _entry(Image(), torch.rand(2, 3, 16, 12))


def sequence() -> Entry:
    torch.manual_seed(1)
    axes = {0: DYNAMIC, 1: DYNAMIC}
    return _entry(Sequence(), torch.randint(0, 60, (2, 9)), torch.rand(2, 9) < 0.8, dynamic=(axes, axes))


def mixer() -> Entry:
    torch.manual_seed(1)
    return _entry(Mixer(), torch.randn(2, 12, 12), dynamic=({0: DYNAMIC},))


def half_norm() -> Entry:
    torch.manual_seed(1)
    return _entry(HalfNorm(), 400 * torch.randn(4, 16).half(), dynamic=({0: DYNAMIC},))


def counts() -> Entry:
    torch.manual_seed(1)
    return _entry(Counts(), torch.randint(-50, 51, (40,)), dynamic=({0: DYNAMIC},))


def steps() -> Entry:
    torch.manual_seed(1)
    return _entry(Steps(), torch.randint(0, 256, (8, 8)).float(), dynamic=({0: DYNAMIC},))


def scaled() -> Entry:
    torch.manual_seed(1)
    return _entry(Scaled(), torch.rand(2, 3, 8, 8), dynamic=({0: DYNAMIC},))


def average() -> Entry:
    torch.manual_seed(1)
    return _entry(Average(), torch.randn(6, 4), dynamic=({0: DYNAMIC},))


def detector() -> Entry:
    torch.manual_seed(1)
    return _entry(Detector(), torch.rand(2, 3, 16, 12), dynamic=({0: DYNAMIC},))


def suppressor() -> Entry:
    torch.manual_seed(1)
    return _entry(Suppressor(), torch.rand(1, 3, 24, 24))


def with_kernel(name: str) -> Entry:
    """The model of one of fault_operators.py's operators."""
    torch.manual_seed(1)
    model = WithKernel(getattr(fault_operators, name), reduces=name == "size_zero")
    return _entry(model, torch.randn(4, 6), dynamic=({0: DYNAMIC, 1: DYNAMIC},))
