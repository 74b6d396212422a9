"""What the tables packages_*.py share: names of dynamic dimensions, and functions as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from side_by_side import Situation as Example
from torch import nn

__all__ = ["BATCH", "CLIP", "IMAGE", "SERIES", "SOUND", "VOLUME", "Example", "Factory", "Function", "images", "sound"]

Factory = Callable[[], Example]

BATCH = {0: "batch"}
IMAGE = {0: "batch", 2: "height", 3: "width"}
CLIP = {0: "batch", 2: "frames"}
VOLUME = {0: "batch", 2: "depth", 3: "height", 4: "width"}
SOUND = {0: "batch", 1: "time"}
SERIES = {0: "batch", 2: "time"}


class Function(nn.Module):
    """A function of one tensor or two, as a module."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__()
        self.function = function
        self.options = options

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        """Call the function."""
        return self.function(x, **self.options) if y is None else self.function(x, y, **self.options)


def images(model: nn.Module, height: int, width: int, *, channels: int = 3, batch: int = 2) -> Example:
    """A module that takes images of any size, with values from 0 to 1."""
    return Example(model.eval(), (torch.rand(batch, channels, height, width),), {}, (IMAGE,))


def sound(model: nn.Module, length: int, *, channels: int | None = None, batch: int = 2) -> Example:
    """A module that takes waveforms of any length: (batch, time), or (batch, channels, time)."""
    shape = (batch, length) if channels is None else (batch, channels, length)
    time = torch.arange(length) / 16000
    wave = 0.4 * torch.sin(2 * torch.pi * 440 * time) + 0.1 * torch.randn(shape)
    return Example(model.eval(), (wave.clamp(-1, 1),), {}, (SOUND if channels is None else SERIES,))
