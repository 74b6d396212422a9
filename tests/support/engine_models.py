"""What every engine is tried on: models, and operators of one's own with and without a kernel."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import opbridge

__all__ = ["Cnn", "Deform", "Extremes", "PythonExtremes", "SoftSteps", "extremes", "python_extremes", "soft_step"]


@opbridge.operator("enginetest::soft_step")
def soft_step(x: Tensor, width: float = 1.0) -> Tensor:
    """A step from 0 to 1 that takes some width; it has a function body and no kernel."""
    return torch.clamp(x / width + 0.5, 0.0, 1.0)


@opbridge.operator("enginetest::extremes")
def extremes(x: Tensor, offset: Tensor | None = None, factor: int = 2, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The largest element of factor * x + offset along an axis, and where it is."""
    scaled = factor * x if offset is None else factor * x + offset
    return scaled.amax(axis), scaled.argmax(axis)


extremes.kernel(Path(__file__).parent / "engine_kernels" / "extremes.h")


@opbridge.operator("enginetest::python_extremes")
def python_extremes(x: Tensor, offset: Tensor | None = None, factor: int = 2, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The same, of matrices, with a kernel that is written in Python."""
    return extremes.function(x, offset, factor, axis)


@python_extremes.kernel(
    layout="x[n, m], offset[n, m] -> values[n if axis % 2 == 1 else m], int64 indices[n if axis % 2 == 1 else m]",
    dtypes=["float32", "float64", "int64"],
)
def python_extremes_kernel(x, offset, factor, axis, values, indices, begin, end):
    if factor == 0:
        raise ValueError("the factor must not be zero")
    rows = axis % 2 == 1
    for i in range(begin, end):
        for k in range(x.shape[1] if rows else x.shape[0]):
            row, column = (i, k) if rows else (k, i)
            value = factor * x[row, column]
            if offset is not None:
                value += offset[row, column]
            if k == 0 or value > values[i]:
                values[i] = value
                indices[i] = k


class Cnn(nn.Module):
    """Convolutions, a normalization, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3)
        self.head = nn.Linear(6, 4)
        self.eval()

    def forward(self, image: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(image))), 2)
        return self.head(torch.relu(self.second(x)).mean((2, 3)))


class SoftSteps(nn.Module):
    """An operator with a function body, twice, at other attributes."""

    def forward(self, x: Tensor) -> Tensor:
        return soft_step(x) + soft_step(x.abs(), 3.0)


class Extremes(nn.Module):
    """The operator with a kernel, with and without its optional input."""

    operator = staticmethod(extremes)

    def __init__(self, factor: int = 3) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values, indices = self.operator(x, offset, self.factor, 0)
        others, places = self.operator(x)
        return values, indices, others, places


class PythonExtremes(Extremes):
    """The operator whose kernel is written in Python."""

    operator = staticmethod(python_extremes)


class Deform(nn.Module):
    """torchvision's deformable convolution with a mask, groups of weights and groups of offsets."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.bias = nn.Parameter(torch.randn(4, 2, 3, 3)), nn.Parameter(torch.randn(4))

    def forward(self, image: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        from torchvision.ops import deform_conv2d

        return deform_conv2d(image, offset, self.weight, self.bias, padding=1, mask=mask)
