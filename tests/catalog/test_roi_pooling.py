"""Pooling of boxes: the function bodies and the kernels against torchvision, and models that contain them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
ops = pytest.importorskip("torchvision").ops

from linalg_kernels import needs_compiler  # noqa: E402

import opbridge  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.catalog.ops.vision import ps_roi_align, roi_pool  # noqa: E402
from opbridge.kernels import declared  # noqa: E402
from opbridge.kernels.compiler import build  # noqa: E402
from opbridge.kernels.library import KernelLibrary  # noqa: E402

pytestmark = pytest.mark.newest

HEADERS = Path(roi_pool.__file__).parent
BODIES: dict[str, Callable[..., Any]] = {
    "roi_pool": roi_pool.roi_pool,
    "ps_roi_pool": roi_pool.ps_roi_pool,
    "ps_roi_align": ps_roi_align.ps_roi_align,
}
HALVES = torch.tensor([[0, 1, 1.5, 2.5, 7.5], [1, -0.5, -1.5, 0.49999997, 3.5], [0, 3, 3, 5, 4]])
"""What C's round takes away from 0, and a number whose sum with 0.5 is rounded up to 1."""


def _boxes(count: int, low: float, high: float, dtype: Any) -> Any:
    corners = low + (high - low) * torch.rand(count, 2, 2, dtype=dtype)
    corners = torch.cat([corners.amin(1), corners.amax(1)], 1)
    return torch.cat([torch.randint(0, 2, (count, 1)).to(dtype), corners], 1)


def _calls(name: str, dtype: Any) -> Iterator[tuple[Any, ...]]:
    """Images and boxes: inside and outside of the image, whole numbers, far too large, without an area, and none."""
    for bins, scale, (height, width) in (((3, 2), 1.0, (9, 11)), ((7, 7), 0.25, (20, 13)), ((1, 2), 0.3, (1, 5))):
        channels = 2 * bins[0] * bins[1] if name.startswith("ps") else 3
        images = torch.randn(2, channels, height, width, dtype=dtype)
        size = max(height, width) / scale
        sets = [_boxes(12, low * size, high * size, dtype) for low, high in ((0, 1), (-0.5, 1.5), (-4, 4), (1.5, 2))]
        sets += [sets[0].round(), HALVES.to(dtype) * torch.tensor([1] + 4 * [1 / scale], dtype=dtype)]
        sets += [sets[0][:, [0, 1, 2, 1, 2]], sets[0][:0]]
        for rois, ratio in itertools.product(sets, ((2,), (0,), (-1,)) if name == "ps_roi_align" else ((),)):
            yield images, rois, scale, *bins, *ratio


def _assert_same(found: Any, expected: Any, label: str) -> None:
    tolerance = 1e-12 if expected[0].dtype is torch.float64 else 1e-5
    # Without an area there are no points, and torchvision divides 0 by their number.
    torch.testing.assert_close(
        found[0], expected[0], rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text: label + text
    )
    assert torch.equal(found[1], expected[1]), label
    assert found[1].dtype is torch.int32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_body(name: str, dtype: Any) -> None:
    for call in _calls(name, dtype):
        expected = getattr(torch.ops.torchvision, name)(*call)
        _assert_same(BODIES[name](*call), expected, f"{name} of boxes {call[1]}, {call[2:]}: ")


@pytest.mark.quick("ps_roi_pool", every=3)
@needs_compiler
@pytest.mark.parametrize("name", BODIES)
def test_kernel(name: str) -> None:
    library = KernelLibrary(build([HEADERS / f"{name}.h"]))
    names = ("spatial_scale", "pooled_height", "pooled_width", "sampling_ratio")
    for images, rois, *numbers in _calls(name, torch.float32):
        attributes = dict(zip(names, numbers, strict=False))
        found = library.run(f"torchvision::{name}", [images.numpy(), rois.numpy()], attributes)
        expected = getattr(torch.ops.torchvision, name)(images, rois, *numbers)
        _assert_same(list(map(torch.from_numpy, found)), expected, f"{name} of boxes {rois}, {numbers}: ")


def test_infinite_and_missing_numbers_stay_in_their_bins() -> None:
    images = torch.randn(1, 4, 6, 6)
    images[0, 0, 1, 1], images[0, 1, 2, 2], images[0, 2, 0, 0] = torch.inf, -torch.inf, torch.nan
    images[0, 3] = -torch.inf
    rois = torch.tensor([[0.0, 0, 0, 5, 5], [0, 3, 3, 5, 5], [0, 1, 1, 2, 2]])
    for name, arguments in (("roi_pool", (1.0, 2, 2)), ("ps_roi_pool", (1.0, 2, 2)), ("ps_roi_align", (1.0, 2, 2, 1))):
        expected = getattr(torch.ops.torchvision, name)(images, rois, *arguments)
        for mine, theirs in zip(BODIES[name](images, rois, *arguments), expected, strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True)


class Pools(torch.nn.Module):
    """All operators that pool boxes."""

    def forward(self, images: Any, rois: Any) -> Any:
        return (
            *torch.ops.torchvision.roi_pool(images, rois, 0.5, 3, 2),
            *torch.ops.torchvision.ps_roi_pool(images, rois, 0.5, 2, 3),
            ops.ps_roi_align(images, rois, (2, 3), 0.5),
            *(
                ops.roi_align(images, rois, (3, 2), 0.5, ratio, is_aligned)
                for ratio in (2, -1)
                for is_aligned in (0, 1)
            ),
        )


@pytest.fixture
def engines() -> tuple[str, ...]:
    pytest.importorskip("openvino")
    return ("onnxruntime", "openvino")


@pytest.mark.sweep
def test_models(engines: tuple[str, ...], tmp_path: Path) -> None:
    bundle = opbridge.export(
        Pools(),
        (torch.randn(2, 12, 14, 17), _boxes(9, 0, 28, torch.float32)),
        path=tmp_path / "bundle",
        engines=engines,
        dynamic_shapes=({0: "images", 2: "height", 3: "width"}, {0: "boxes"}),
    )
    assert bundle.verified, bundle.verification


class Sevenths(torch.nn.Module):
    """Bins whose sizes are rounded."""

    def forward(self, images: Any, rois: Any) -> Any:
        return ops.roi_pool(images[:, :2], rois, 7), ops.ps_roi_align(images, rois, 7)


@pytest.mark.sweep
def test_function_bodies_round_the_edges_of_bins_as_torchvision(
    engines: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product with 1 / 7 would often be in the next bin."""
    Catalog.load()
    for name in BODIES:
        monkeypatch.delitem(declared._declared, f"torchvision::{name}")
    sizes = torch.arange(1, 141).float()
    rois = torch.stack([0 * sizes, 0 * sizes, 0 * sizes + 3, sizes, sizes + 3], 1)
    images = torch.randn(1, 49, 150, 150)
    bundle = opbridge.export(Sevenths(), (images, rois), path=tmp_path / "bundle", engines=engines, verify=False)
    for engine in engines:
        found = opbridge.load(bundle.path, engine)(images.numpy(), rois.numpy())
        for mine, theirs in zip(found, Sevenths()(images, rois), strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs, rtol=1e-5, atol=1e-5)
