"""Fourier transforms: short ones are products with sines and cosines, long ones stay ONNX DFT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from roundtrip import travel  # noqa: E402

import opbridge  # noqa: E402

pytestmark = pytest.mark.newest

SHORT: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rfft": (torch.fft.rfft, (3, 64)),
    "rfft, first axis": (lambda x: torch.fft.rfft(x, dim=0), (64, 3, 2)),
    "rfft, middle axis, padded": (lambda x: torch.fft.rfft(x, n=100, dim=1), (2, 64, 3)),
    "rfft2, orthonormal": (lambda x: torch.fft.rfft2(x, norm="ortho"), (2, 16, 30)),
    "rfftn": (lambda x: torch.fft.rfftn(x, dim=(0, 2)), (8, 3, 256)),
    "fft": (torch.fft.fft, (3, 16)),
    "ifft2": (lambda x: torch.fft.ifft2(torch.complex(x, 1 - x)), (3, 8, 12)),
    "irfft": (lambda x: torch.fft.irfft(torch.complex(x, x * 2), n=63), (3, 32)),
    "irfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, norm="forward"), (2, 16, 20)),
    "ihfft": (torch.fft.ihfft, (3, 64)),
}
LONG: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "rfft": (torch.fft.rfft, (3, 512)),
    "rfft2 of a long axis": (torch.fft.rfft2, (512, 8)),
    "ifft": (lambda x: torch.fft.ifft(torch.complex(x, 1 - x)), (2, 1024)),
}


def node_types(call: Callable[..., Any], sizes: tuple[int, ...], folder: Path, **options: Any) -> set[str]:
    """The operators of the exported model, which is verified."""

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            result = call(x)
            return torch.stack([result.real, result.imag]) if result.is_complex() else result

    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0))
    bundle = opbridge.export(Net(), (x,), path=folder / "bundle", **options)
    assert bundle.verified, bundle.verification
    return {node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}


@pytest.mark.quick("rfft2, orthonormal", "irfft2", every=4)
@pytest.mark.parametrize("name", SHORT)
def test_short_transforms_are_products(name: str, tmp_path: Path) -> None:
    types = node_types(*SHORT[name], tmp_path)
    assert "MatMul" in types
    assert not types & {"DFT", "ScatterND", "Cast"}, types


@pytest.mark.quick("rfft", every=3)
@pytest.mark.parametrize("name", LONG)
def test_long_transforms_stay(name: str, tmp_path: Path) -> None:
    assert "DFT" in node_types(*LONG[name], tmp_path)


def test_other_axes_may_be_dynamic(tmp_path: Path) -> None:
    call, sizes = SHORT["rfft2, orthonormal"]
    types = node_types(call, sizes, tmp_path, dynamic_shapes=({0: "batch"},))
    assert "DFT" not in types


def test_a_dynamic_length_stays(tmp_path: Path) -> None:
    assert "DFT" in node_types(torch.fft.rfft, (3, 64), tmp_path, dynamic_shapes=({1: "length"},))


OF_A_LENGTH: dict[str, Callable[..., Any]] = {
    "hfft": lambda x, n: torch.fft.hfft(torch.complex(x, 1 - x), n=n),
    "irfft2": lambda x, n: torch.fft.irfft2(torch.fft.rfft2(x), s=(n, n)),
    "irfft": lambda x, n: torch.fft.irfft(torch.fft.rfft(x, dim=0), n, 0, norm="ortho"),
    "rfftn": lambda x, n: torch.fft.rfftn(x, s=(-1, n)).real,
    "ifft2": lambda x, n: torch.fft.ifft2(x, s=(n, 6), dim=(1, 0)).imag,
}


@pytest.mark.quick("hfft", "irfft2", every=1)
@pytest.mark.parametrize("name", OF_A_LENGTH)
def test_a_length_that_sizes_determine(name: str) -> None:
    """In the example, the input has the length already, or is longer."""

    def model(x: Any) -> Any:
        return OF_A_LENGTH[name](x, 1 + max(x.shape))

    axes = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    trip = travel(model, (torch.rand(8, 10),), dynamic_shapes=(axes,))
    for sizes in ((12, 9), (16, 5), (4, 21)):
        trip.check(torch.rand(sizes), rtol=1e-4, atol=1e-4)
