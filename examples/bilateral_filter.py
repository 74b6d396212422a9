"""A kernel that is written in Python: the bilateral filter, which smooths an image and keeps its edges.

In torch operators it is a pass over the image for each of its (2 radius + 1)² taps; as a loop it is one pass. Numba
compiles the loop (``pip install "numba>=0.62.0"``) into the same kind of library as a kernel in C++: it runs in every
engine that takes kernels, in the engine's threads, and what is deployed holds no Python.

    opbridge export examples/bilateral_filter.py:model -o build/bilateral
"""

import math

import torch
from torch import Tensor

import opbridge


@opbridge.operator("mylib::bilateral")
def bilateral(x: Tensor, radius: int = 2, space: float = 1.5, color: float = 0.2) -> Tensor:
    """Mean of each pixel's neighbours, weighted by how near they are in place (space) and in value (color)."""
    height, width = x.shape[-2:]
    padded = torch.nn.functional.pad(x, [radius] * 4, mode="replicate")
    total, weights = torch.zeros_like(x), torch.zeros_like(x)
    for row in range(2 * radius + 1):
        for column in range(2 * radius + 1):
            neighbour = padded[..., row : row + height, column : column + width]
            place = ((row - radius) ** 2 + (column - radius) ** 2) / (2 * space * space)
            weight = torch.exp(-place - (neighbour - x).square() / (2 * color * color))
            total, weights = total + weight * neighbour, weights + weight
    return total / weights


@bilateral.kernel(layout="x[n, c, h, w] -> y[n, c, h, w]")
def bilateral_kernel(x, radius, space, color, y, begin, end):
    channels, height, width = x.shape[1:]
    for image in range(begin, end):
        for channel in range(channels):
            plane, result = x[image, channel], y[image, channel]
            for i in range(height):
                for j in range(width):
                    total, weights = 0.0, 0.0
                    for row in range(i - radius, i + radius + 1):
                        for column in range(j - radius, j + radius + 1):
                            value = plane[min(max(row, 0), height - 1), min(max(column, 0), width - 1)]
                            place = ((row - i) ** 2 + (column - j) ** 2) / (2 * space * space)
                            weight = math.exp(-place - (value - plane[i, j]) ** 2 / (2 * color * color))
                            total += weight * value
                            weights += weight
                    result[i, j] = total / weights


class Net(torch.nn.Module):
    """A filter before a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, image):
        return self.first(bilateral(image))


def model():
    torch.manual_seed(0)
    return {
        "model": Net().eval(),
        "args": (torch.rand(2, 3, 12, 16),),
        "dynamic_shapes": {"image": {0: torch.export.Dim("batch")}},
        "input_names": ["image"],
        "output_names": ["features"],
    }
