"""Elements of small tensors that contain sizes of the inputs are these sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate, max_pool2d

from opbridge.capture.capture import capture

Dim = torch.export.Dim


def levels(x: torch.Tensor) -> list[torch.Tensor]:
    """Feature maps in one tensor, and their sizes in another, as in multi-scale deformable attention."""
    pooled = max_pool2d(x, 2, ceil_mode=True)
    values = torch.cat([x.flatten(2), pooled.flatten(2)], 2)
    sizes = torch.tensor([tuple(x.shape[2:]), tuple(pooled.shape[2:])])
    parts = values.split([height * width for height, width in sizes], dim=2)
    return [part.view(*part.shape[:2], height, width) for part, (height, width) in zip(parts, sizes, strict=True)]


def durations(x: torch.Tensor) -> torch.Tensor:
    """Each row as often as its duration says, as in text to speech."""
    lengths = torch.full((x.shape[0],), x.shape[2], dtype=torch.int64)
    rows = torch.arange(int(lengths.max()))
    return x[0, 0, rows.repeat_interleave(x[0, 0, :, 0].round().long().clamp(1, 3))]


def doubled(x: torch.Tensor) -> torch.Tensor:
    size = (2 * torch.tensor(x.shape[2:]) + 1) // 2 * 2
    return interpolate(x, size=size.tolist(), mode="nearest").flatten(2)[..., : size.prod().item()]


def written(x: torch.Tensor) -> torch.Tensor:
    sizes = torch.tensor([x.shape[2], x.shape[3]])
    sizes[0] = 1
    return x[:, :, : sizes.min().item()]


def longer(x: torch.Tensor) -> torch.Tensor:
    height, width = torch.tensor(x.shape[2]), torch.tensor(x.shape[3])
    count = torch.maximum(height, width).item() - torch.minimum(height, width).item()
    return torch.cat([x, x.new_zeros(*x.shape[:2], count, x.shape[3])], 2)


def first(x: torch.Tensor) -> torch.Tensor:
    lengths = torch.full((x.shape[0],), x.shape[2])
    _, index = lengths.max(dim=0)
    other = torch.max(lengths, torch.tensor(100)).min()
    return x[:, :, : index.item() + 1] + other.item()


@pytest.mark.parametrize("model", [levels, durations, doubled, written, longer, first])
def test_elements_are_sizes(model: Callable[..., Any]) -> None:
    shapes = {"x": {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}}
    program = capture(model, (torch.rand(2, 3, 6, 8),), dynamic_shapes=shapes).program.module(check_guards=False)
    for height, width in ((6, 8), (5, 7), (9, 4), (3, 3)):
        x = 3 * torch.rand(2, 3, height, width)
        torch.testing.assert_close(program(x), model(x))
