"""Nearest-neighbor interpolation: the pixels are those of PyTorch, and Resize is used where it takes the same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from roundtrip import travel
from torch import Tensor, nn
from torch.nn.functional import interpolate

import opbridge

DYNAMIC = torch.export.Dim.DYNAMIC
SIZES = [(21, 24), (24, 21), (14, 2), (49, 21), (60, 25), (10, 13), (7, 14), (2, 82), (1, 5)]
"""Sizes of inputs and outputs. The pixel 8 of 24 is the pixel 7 of 21; its quotient by 24 / 21, rounded, is below 7."""


def ramp(*sizes: int) -> Tensor:
    return torch.arange(float(np.prod(sizes))).reshape(sizes)


def like(images: Tensor, model: Tensor, mode: str = "nearest") -> Tensor:
    return interpolate(images, model.shape[2:], mode=mode)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_fixed_sizes(mode: str, tmp_path: Path) -> None:
    class Resized(nn.Module):
        def forward(self, *images: Tensor) -> Any:
            pairs = [(x, wanted) for x, (_, wanted) in zip(images, SIZES, strict=False)]
            flat = [interpolate(x, wanted, mode=mode) for x, wanted in pairs]
            return *flat, *[interpolate(x[..., None], (wanted, 3), mode=mode) for x, wanted in pairs]

    images = tuple(ramp(1, 2, size) for size, _ in SIZES)
    bundle = opbridge.export(Resized(), images, path=tmp_path / "bundle", verify=False)
    for found, expected in zip(opbridge.load(bundle.path)(*map(np.asarray, images)), Resized()(*images), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_centers_on_the_edge_between_two_pixels(engine: str, tmp_path: Path) -> None:
    pytest.importorskip(engine)
    factors = (1.7, 0.6, 1.3, 2.5, 0.4, 1 / 3, 0.5, 2.2)

    class Resized(nn.Module):
        def forward(self, *images: Tensor) -> list[Tensor]:
            return [interpolate(x, scale_factor=f, mode="nearest-exact") for x in images for f in factors]

    images = ramp(1, 1, 45, 34), ramp(1, 1, 400, 5)
    bundle = opbridge.export(Resized(), images, path=tmp_path / "bundle", engines=(engine,), verify=False)
    found = opbridge.load(bundle.path, engine)(*[x.numpy() for x in images])
    for array, expected in zip(found, Resized()(*images), strict=True):
        np.testing.assert_array_equal(array, expected)


def _check(engine: str, sizes: Sequence[tuple[int, int]], folder: Path) -> None:
    pytest.importorskip(engine)
    axes = {2: DYNAMIC, 3: DYNAMIC}
    examples = ramp(1, 1, 6, 5), ramp(1, 1, 7, 4)
    bundle = opbridge.export(
        like, examples, dynamic_shapes=(axes, axes), path=folder / "bundle", engines=(engine,), verify=False
    )
    session = opbridge.load(bundle.path, engine)
    for (height, rows), (width, columns) in zip(sizes, (*sizes[1:], sizes[0]), strict=True):
        images, model = ramp(1, 1, height, width), torch.zeros(1, 1, rows, columns)
        np.testing.assert_array_equal(session(images.numpy(), model.numpy())[0], like(images, model))


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_dynamic_sizes(engine: str, tmp_path: Path) -> None:
    _check(engine, SIZES, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_all_dynamic_sizes(engine: str, tmp_path: Path) -> None:
    _check(engine, list(itertools.product(range(1, 100), repeat=2)), tmp_path)


@pytest.mark.quick(every=24)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks_and_types(rank: int, dtype: torch.dtype, mode: str) -> None:
    axes = dict.fromkeys(range(2, 2 + rank), DYNAMIC)
    images, model = ramp(1, 1, *(21, 2, 3)[:rank]).to(dtype), torch.zeros(1, 1, *(9, 3, 4)[:rank])
    trip = travel(lambda x, y: like(x, y, mode), (images, model), dynamic_shapes=(axes, axes))
    for wanted in ((24, 3, 2), (42, 4, 6), (7, 1, 3)):
        trip.check(images, torch.zeros(1, 1, *wanted[:rank]), rtol=0, atol=0)


def test_a_known_power_of_two_is_a_resize_alone() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        height, width = x.shape[2:]
        return interpolate(x[:, :, :1, :1], (height, width)), interpolate(x, (height * 2, width // 2 * 2 * 4))

    trip = travel(model, (ramp(1, 1, 6, 8),), dynamic_shapes=({2: DYNAMIC, 3: torch.export.Dim("half") * 2},))
    assert trip.op_types.count("Resize") == 2
    assert "If" not in trip.op_types
    trip.check(ramp(1, 1, 3, 10), rtol=0, atol=0)


def test_one_size_for_two_axes() -> None:
    axes = {2: DYNAMIC, 3: DYNAMIC}
    trip = travel(lambda x: interpolate(x, (sum(x.shape[2:]),) * 2), (ramp(1, 1, 6, 7),), dynamic_shapes=(axes,))
    trip.check(ramp(1, 1, 2, 5), rtol=0, atol=0)


@pytest.mark.slow
def test_one_dynamic_size() -> None:
    trip = travel(lambda x: interpolate(x, (42, x.shape[0])), (ramp(5, 1, 21, 9),), dynamic_shapes=({0: DYNAMIC},))
    assert "If" in trip.op_types
    for size in (5, 7, 10):
        trip.check(ramp(size, 1, 21, 9), rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_integer_factors_whose_inverse_is_rounded_down(mode: str) -> None:
    trip = travel(
        lambda x: interpolate(x, scale_factor=(41, 3), mode=mode), (ramp(1, 1, 4, 5),), dynamic_shapes=({2: DYNAMIC},)
    )
    trip.check(ramp(1, 1, 9, 5), rtol=0, atol=0)


@pytest.mark.sweep
def test_layouts_branches_and_maps_of_other_sizes() -> None:
    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            first = self.first(x.to(memory_format=torch.channels_last))
            second = self.second(first)
            merged = first + like(second, first)
            result = like(second, x) + 1 if second.sum() > 0 else like(first, x)
            return merged.permute(0, 2, 3, 1).flatten(1), result

    axes = {0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC}
    trip = travel(Pyramid(), (ramp(2, 3, 32, 24),), dynamic_shapes=(axes,))
    for sizes in ((2, 3, 32, 24), (1, 3, 35, 70)):
        for sign in (1, -1):
            trip.check(sign * (1 + ramp(*sizes)), rtol=0, atol=0)
