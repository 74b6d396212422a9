"""Convolutions with one group per element of the batch, whose number is dynamic: weights that depend on the input."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opbridge
from opbridge.engines.base import Session

functional = torch.nn.functional


class Modulated(torch.nn.Module):
    """Karras et al., "Analyzing and improving the image quality of StyleGAN", 2020."""

    def forward(self, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        batch = image.shape[0]
        joined = image.reshape(1, -1, *image.shape[2:])
        found = functional.conv2d(joined, weight.flatten(0, 1), padding=1, stride=(1, 2), groups=batch)
        return found.unflatten(1, (batch, -1))[0]


class Enlarged(torch.nn.Module):
    def forward(self, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        batch = image.shape[0]
        joined, kernels = image.reshape(1, -1, *image.shape[2:]), weight.transpose(1, 2).flatten(0, 1)
        found = functional.conv_transpose2d(joined, kernels, stride=2, padding=1, output_padding=1, groups=batch)
        return found.unflatten(1, (batch, -1))[0]


class Correlated(torch.nn.Module):
    """Each channel with its own template, as in trackers."""

    def forward(self, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        templates = weight[:, 0].flatten(0, 1)[:, None]
        return functional.conv2d(image.reshape(1, -1, *image.shape[2:]), templates, groups=templates.shape[0])


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("module", [Modulated(), Enlarged(), Correlated()], ids=lambda module: type(module).__name__)
def test_one_group_per_element_of_the_batch(module: torch.nn.Module, tmp_path: Path) -> None:
    def inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch, 4, 7, 8), torch.randn(batch, 5, 4, 3, 3)

    shapes = {"image": {0: "batch"}, "weight": {0: "batch"}}
    assert opbridge.export(module, inputs(2), dynamic_shapes=shapes, path=tmp_path / "b").verified
    session: Session = opbridge.load(tmp_path / "b")
    arguments = inputs(3)
    (found,) = session(*(value.numpy() for value in arguments))
    torch.testing.assert_close(torch.from_numpy(found), module(*arguments), rtol=1e-4, atol=1e-5)
