"""Interpolation by a factor that is computed from dynamic sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("onnxruntime")

from torch.nn import functional as F

import opbridge

MODES = {"bicubic": 2, "bilinear": 2, "linear": 1, "trilinear": 3, "nearest": 2, "nearest-exact": 3}


class Resized(torch.nn.Module):
    """Resizes a tensor to the sizes of another, by factors that are a little too large."""

    def __init__(self, mode: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.mode = mode
        self.table = torch.nn.Parameter(torch.randn(1, 4, *[7] * MODES[mode], dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = tuple(float(size // 2 + 0.1) / 7 for size in x.shape[2:])
        return F.interpolate(self.table, scale_factor=factors, mode=self.mode)


@pytest.mark.quick(every=8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_a_dynamic_factor(mode: str, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rank = Resized(mode, dtype).eval(), MODES[mode]
    shapes: Any = {axis: torch.export.Dim(f"size{axis}", min=4) for axis in range(2, 2 + rank)}
    example = torch.randn(1, 1, *(10, 18, 12)[:rank])
    bundle = opbridge.export(model, (example,), path=tmp_path / "bundle", dynamic_shapes=(shapes,))
    assert bundle.verified
    run = opbridge.load(bundle.path)
    for sizes in ((10, 18, 12), (4, 15, 5), (29, 6, 14)):
        x = torch.randn(1, 1, *sizes[:rank])
        torch.testing.assert_close(torch.from_numpy(run(x.numpy())[0]), model(x).detach(), rtol=1e-5, atol=1e-5)


class Fitted(torch.nn.Module):
    """Resizes a mask to an image, and an image to the size that a factor gives."""

    def forward(self, mask: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        factors = (x.shape[2] / mask.shape[2], x.shape[3] / mask.shape[3])
        resized = F.interpolate(mask, scale_factor=factors, mode="nearest")
        corners = F.interpolate(x, scale_factor=factors, mode="bilinear", align_corners=True)
        return resized, corners, F.interpolate(x, scale_factor=factors, mode="bicubic", recompute_scale_factor=True)


def test_nearest_bytes_and_factors_that_only_give_the_size(tmp_path: Path) -> None:
    sizes = ((6, 5, 12, 15), (7, 4, 15, 9), (5, 9, 3, 40))
    cases = [
        (torch.randint(0, 255, (1, 1, *size[:2]), dtype=torch.uint8), torch.randn(1, 2, *size[2:])) for size in sizes
    ]
    shapes: Any = tuple({axis: torch.export.Dim(f"{name}{axis}") for axis in (2, 3)} for name in "ab")
    bundle = opbridge.export(Fitted(), cases[0], path=tmp_path / "bundle", dynamic_shapes=shapes)
    assert bundle.verified
    run = opbridge.load(bundle.path)
    for case in cases:
        found = run(*(value.numpy() for value in case))
        for one, expected in zip(found, Fitted()(*case), strict=True):
            torch.testing.assert_close(torch.from_numpy(one), expected, rtol=1e-4, atol=1e-4)


class Positions(torch.nn.Module):
    """The position embeddings of DINOv2: those of the training at its size, and interpolated ones at others."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, 1 + 16, 8))
        self.patches = torch.nn.Conv2d(3, 8, 2, 2)

    def positions(self, x: torch.Tensor, width: int, height: int) -> torch.Tensor:
        count = self.table.shape[1] - 1
        if x.shape[1] - 1 == count and width == height:
            return self.table
        side, wide, high = int(count**0.5), width // 2, height // 2
        grid = self.table[:, 1:].reshape(1, side, side, -1).permute(0, 3, 1, 2)
        factors = (float(wide + 0.1) / side, float(high + 0.1) / side)
        grid = F.interpolate(grid, scale_factor=factors, mode="bicubic", antialias=False)
        assert (wide, high) == grid.shape[-2:]
        return torch.cat([self.table[:, :1], grid.permute(0, 2, 3, 1).reshape(1, -1, grid.shape[1])], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width, height = x.shape[2:]
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.table[:, :1].expand(len(x), -1, -1), tokens], 1)
        return tokens + self.positions(tokens, width, height)


@pytest.mark.sweep
def test_position_embeddings_of_dino(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Positions().eval()
    shapes: Any = {0: "batch", 2: torch.export.Dim("width", min=4), 3: torch.export.Dim("height", min=4)}
    bundle = opbridge.export(model, (torch.randn(2, 3, 14, 20),), path=tmp_path / "bundle", dynamic_shapes=(shapes,))
    assert bundle.verified
    run = opbridge.load(bundle.path)
    for size in ((14, 20), (8, 8), (9, 9), (8, 9), (30, 31)):
        x = torch.randn(3, 3, *size)
        torch.testing.assert_close(torch.from_numpy(run(x.numpy())[0]), model(x).detach(), rtol=1e-4, atol=1e-4)
