"""Convolutions whose paddings depend on sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opbridge

functional = torch.nn.functional


class Paddings(torch.nn.Module):
    def forward(self, image: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        height, width = image.shape[2:]
        both = functional.conv2d(image, weight, padding=(height // 3, 1), dilation=2)
        return both, functional.conv1d(image[..., 0], weight[..., 0], padding=width // 4)


class OutputPaddings(torch.nn.Module):
    """The decoder of a network whose images have any size."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv2d(4, 4, 3, 2, 1)
        self.up = torch.nn.ConvTranspose2d(4, 4, 3, 2, 1)
        self.wide = torch.nn.ConvTranspose2d(4, 4, 2, 2, padding=1, dilation=3)

    def forward(self, image: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half, (height, width) = self.down(image), image.shape[2:]
        cut = functional.conv_transpose2d(half, weight.transpose(0, 1), stride=3, padding=(height % 3, 1))
        return self.up(half, output_size=(height, width)) + self.wide(half).mean(), cut


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("module", [Paddings(), OutputPaddings()], ids=lambda module: type(module).__name__)
def test_paddings_that_depend_on_sizes(module: torch.nn.Module, tmp_path: Path) -> None:
    def inputs(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(2, 4, height, width), torch.randn(5, 4, 3, 3)

    shapes = {"image": {2: "height", 3: "width"}, "weight": None}
    assert opbridge.export(module, inputs(9, 12), dynamic_shapes=shapes, path=tmp_path / "b").verified
    session = opbridge.load(tmp_path / "b")
    for sizes in ((8, 11), (13, 10), (10, 9)):
        arguments = inputs(*sizes)
        found = session(*(value.numpy() for value in arguments))
        for result, expected in zip(found, module(*arguments), strict=True):
            torch.testing.assert_close(torch.from_numpy(result), expected, rtol=1e-4, atol=1e-5)
