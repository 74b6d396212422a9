"""Opsets older than PyTorch's mappings: planned and translated at 18, then taken down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from old_engine import old_engine  # noqa: F401 - a fixture
from roundtrip import PickyEngine, travel
from torch import Tensor, nn

import opbridge
from opbridge.capture.entry import Entry
from opbridge.errors import InputError

pytestmark = pytest.mark.newest


class Attention(nn.Module):
    """What is newer than opset 13 in most models: layer norm, GELU, softmax, means, splits, a gather."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.norm = nn.LayerNorm(16)
        self.mix = nn.Linear(16, 48)
        self.out = nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.words(ids))
        q, k, v = self.mix(x).chunk(3, dim=-1)
        x = nn.functional.scaled_dot_product_attention(q, k, v) + x
        return self.out(nn.functional.gelu(x)).mean(1)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.interpolate(self.body(x), scale_factor=2.0, mode="bilinear")
        return nn.functional.pad(x, (1, 1, 1, 1), mode="reflect").amax((2, 3))


CASES: dict[str, tuple[type[nn.Module], tuple[Any, ...], Any]] = {
    "attention": (Attention, (torch.arange(12).reshape(2, 6),), ({0: "batch", 1: "length"},)),
    "convolutions": (Convolutions, (torch.randn(2, 3, 12, 12),), ({0: "batch"},)),
}


@pytest.mark.quick(every=0)
@pytest.mark.parametrize(("name", "opset"), [("attention", 11), ("attention", 13), ("convolutions", 11)])
def test_verified_today_and_in_the_oldest_engine(name: str, opset: int, tmp_path: Path, old_engine) -> None:  # noqa: F811
    torch.manual_seed(0)
    make, args, shapes = CASES[name]
    model = make().eval()
    bundle = opbridge.export(model, args, path=tmp_path / "b", dynamic_shapes=shapes, opset=opset, verify=False)
    proto = onnx.load(tmp_path / "b" / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert {(item.domain, item.version) for item in proto.opset_import} == {("", opset)}
    assert proto.ir_version == {11: 6, 13: 7}[opset]
    assert bundle.manifest["opset_reason"] == "requested"
    assert bundle.manifest["adaptations"]["onnxruntime"][0]["what"].endswith(f" becomes {opset}")
    assert not any(node.metadata_props for node in proto.graph.node)
    for engine in ("onnxruntime", old_engine.name):
        found = opbridge.verify(tmp_path / "b", reference=Entry("", model, args, {}, shapes), engines=[engine])
        assert found.passed, found.summary()


class OldEngine(PickyEngine):
    """An engine that stops before PyTorch's mappings begin."""

    newest_opset = 16  # type: ignore[assignment]


def test_an_engine_that_stops_at_an_older_opset() -> None:
    trip = travel(nn.LayerNorm(4), (torch.randn(2, 4),), engines=[OldEngine("Foo", below=1)])
    assert {(item.domain, item.version) for item in trip.proto.opset_import} == {("", 16)}
    assert "LayerNormalization" not in trip.op_types
    assert (trip.climbed.opset, str(trip.climbed.opset_reason)) == (16, "the newest that picky takes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset": 10}, "Opset 10 can't be written: 11 is the oldest"),
        ({"opset": 11, "ir_version": 5}, "ONNX IR version 5 can't be written: opset 11 needs at least 6"),
        ({"ir_version": 7}, "ONNX IR version 7 can't be written: opset 18 needs at least 8"),
    ],
)
def test_versions_that_can_not_be_written(options: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        opbridge.export(nn.ReLU(), (torch.ones(2),), path=tmp_path / "b", **options)
    assert not (tmp_path / "b").exists()


def test_an_ir_version_of_the_users(tmp_path: Path) -> None:
    opbridge.export(nn.ReLU(), (torch.ones(2),), path=tmp_path / "b", opset=13, ir_version=8, verify=False)
    assert onnx.load(tmp_path / "b" / "model.onnx").ir_version == 8
