"""Small models with the loops and branches of published ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import affine_grid, grid_sample, interpolate, pad

__all__ = ["MODELS", "Model"]

D = torch.export.Dim.DYNAMIC


@dataclasses.dataclass(frozen=True)
class Model:
    """A model with its example.

    Attributes:
        make: Makes it.
        args: Makes the example inputs.
        dynamic_shapes: As for ``torch.export.export``.
    """

    make: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    dynamic_shapes: Any


MODELS: dict[str, Model] = {}


def model(args: Callable[[], tuple[Any, ...]], dynamic: Any = None) -> Callable[[Any], Any]:
    """Add a class of models to the table."""

    def add(make: Any) -> Any:
        MODELS[make.__name__] = Model(make, args, dynamic)
        return make

    return add


@model(lambda: (torch.randn(2, 5, 4), torch.rand(2, 5) > 0.3), dynamic={"x": {0: D, 1: D}, "mask": {0: D, 1: D}})
class VectorQuantize(nn.Module):
    """The codebook is initialized by the first batch, unless it is already."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(6, 4))
        self.register_buffer("initialized", torch.tensor([True]))

    def forward(self, x, mask):
        flat = x.reshape(-1, 4)
        if not self.initialized:
            self.codes.copy_(flat[:6])
        index = torch.cdist(flat, self.codes).argmin(-1)
        quantized = self.codes[index].view_as(x)
        quantized = torch.where(mask.unsqueeze(-1), x + (quantized - x).detach(), x)
        used = torch.zeros(6).index_add(0, index, torch.ones_like(index, dtype=torch.float32)) / index.shape[0]
        return quantized, index.view(x.shape[:2]), (-(used * (used + 1e-10).log()).sum()).exp()


@model(lambda: (torch.rand(2, 1, 8, 10), torch.tensor(30.0)), dynamic={"x": {0: D}, "angle": {}})
class Rotate(nn.Module):
    """A rotation about the center of an image, which is skipped for an angle of zero."""

    def forward(self, x, angle):
        if angle == 0:
            return x
        radians = torch.deg2rad(angle)
        height, width = x.shape[2:]
        rows = torch.stack(
            [radians.cos(), -radians.sin() * height / width, radians.sin() * width / height, radians.cos()]
        )
        matrix = pad(rows.view(1, 2, 2), (0, 1)).expand(x.shape[0], 2, 3)
        return grid_sample(x, affine_grid(matrix, x.shape, align_corners=False), align_corners=False)


@model(lambda: (torch.rand(1, 1, 16, 24), torch.tensor(2.0)), dynamic={"x": {0: D}, "clip": {}})
class Clahe(nn.Module):
    """The histogram of each tile is equalized, with a limit unless that is zero."""

    def forward(self, x, clip):
        tiles = x.unfold(2, 8, 8).unfold(3, 8, 8).flatten(4)
        index = (tiles * 15).long()
        counts = torch.zeros(*tiles.shape[:4], 16).scatter_add(4, index, torch.ones_like(tiles))
        if clip > 0:
            limit = (clip * 64 / 16).floor().clamp_min(1)
            rest = (counts - limit).clamp_min(0).sum(-1, keepdim=True)
            counts = counts.clamp_max(limit) + rest / 16
        tables = counts.cumsum(-1) * 15 / 64
        equal = torch.stack([tables[:, 0, i, j].gather(1, index[:, 0, i, j]) for i in range(2) for j in range(3)], 1)
        rows = equal.view(-1, 2, 3, 8, 8).permute(0, 1, 3, 2, 4).reshape(-1, 1, 16, 24)
        return interpolate(rows / 15, scale_factor=0.5, mode="bilinear")


@model(lambda: (torch.rand(12), torch.randint(0, 2, (12,))), dynamic={"scores": {0: D}, "labels": {0: D}})
class Auroc(nn.Module):
    """The area under the curve of true and false positives, zero if one of the classes is missing."""

    def forward(self, scores, labels):
        scores, order = scores.sort(descending=True)
        labels = labels[order]
        last = torch.cat([torch.where(scores[1:] != scores[:-1])[0], torch.tensor([scores.shape[0] - 1])])
        true = labels.cumsum(0)[last]
        false = 1 + last - true
        if true[-1] <= 0 or false[-1] <= 0:
            return torch.zeros(())
        x, y = (pad(part, (1, 0)) / part[-1] for part in (false, true))
        return torch.trapezoid(y, x)


@model(lambda: (torch.randn(3, 4), torch.tensor([0.0, 1.0, 0.0])), dynamic={"x": {0: D}, "starts": {0: D}})
class LayerWithTwoNames(nn.Module):
    """Two attributes are the same layer, as the feature extractor of actor and critic."""

    def __init__(self):
        super().__init__()
        self.extract = nn.Linear(4, 4)
        self.extract_of_critic = self.extract
        self.recurrent = nn.GRU(4, 4)

    def forward(self, x, starts):
        recurrent = self.recurrent
        if torch.all(starts == 0.0):
            return recurrent(self.extract(x))[0]
        state = x.new_zeros(1, 4)
        rows = []
        for row, start in zip(x, starts, strict=True):
            y, state = recurrent(self.extract_of_critic(row[None]), state * (1 - start))
            rows.append(y)
        return torch.cat(rows)
