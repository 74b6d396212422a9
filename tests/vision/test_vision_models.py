"""Detectors made of the operators of opbridge.vision: from PyTorch to the engines, at several sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.vision import ms_deform_attn, nms_rotated, roi_align_rotated

pytestmark = [pytest.mark.newest, pytest.mark.sweep]

ENGINES = ["onnxruntime", "openvino"]
DYNAMIC = torch.export.Dim.DYNAMIC


class RotatedDetector(nn.Module):
    """Oriented boxes in two stages: a dense head, the best boxes, their features, classes, suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, stride=4, padding=3), nn.ReLU())
        self.head = nn.Conv2d(16, 6, 3, stride=2, padding=1)
        self.classes = nn.Linear(16 * 9, 3)
        self.refine = nn.Linear(16 * 9, 5)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        features = self.stem(image)
        maps = self.head(features)
        height, width = maps.shape[2:]
        y, x = torch.arange(height).to(image.dtype), torch.arange(width).to(image.dtype)
        place = torch.stack(torch.meshgrid(y, x, indexing="ij"), 2).flip(2).reshape(1, -1, 2)
        score, move, stretch, turn = maps.flatten(2).transpose(1, 2).split([1, 2, 2, 1], 2)
        boxes = torch.cat([(place + 0.5 + move.tanh()) * 8, 16 * stretch.tanh().exp(), 1.5 * turn.tanh()], 2)
        best = score.squeeze(2).topk(12).indices
        chosen = boxes.gather(1, best[..., None].expand(-1, -1, 5))
        numbers = torch.arange(image.shape[0]).to(image.dtype)[:, None, None].expand(-1, 12, 1)
        rois = torch.cat([numbers, chosen], 2).flatten(0, 1)
        pooled = roi_align_rotated(features, rois, 3, 3, 0.25, 2, True, True).flatten(1)
        refined = chosen + self.refine(pooled).reshape(-1, 12, 5)
        scores = self.classes(pooled).softmax(1).reshape(-1, 12, 3)
        kept = nms_rotated(refined, scores.transpose(1, 2), 0.1, 0.2)
        number, label, box = kept.unbind(1)
        return refined[number, box], scores[number, box, label], label, number


class DeformableDecoder(nn.Module):
    """Two layers of Deformable DETR's decoder on three levels of features, with boxes that each layer refines."""

    def __init__(self, width: int = 16, heads: int = 4, points: int = 2, levels: int = 3) -> None:
        super().__init__()
        self.sizes = heads, levels, points
        self.stages = nn.ModuleList(
            nn.Conv2d(width if k else 3, width, 3, stride=4 if k == 0 else 2, padding=1) for k in range(levels)
        )
        self.queries = nn.Parameter(torch.randn(10, width))
        self.places = nn.Linear(width, 2)
        self.layers = nn.ModuleList(self._layer(width, heads * levels * points) for _ in range(2))
        self.classes = nn.Linear(width, 5)

    @staticmethod
    def _layer(width: int, samples: int) -> nn.ModuleDict:
        linear = {name: nn.Linear(width, size) for name, size in (("value", width), ("weights", samples), ("box", 2))}
        return nn.ModuleDict(
            {
                **linear,
                "offsets": nn.Linear(width, 2 * samples),
                "attention": nn.MultiheadAttention(width, 2, batch_first=True),
                "output": nn.Linear(width, width),
                "norm": nn.LayerNorm(width),
            }
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        maps = []
        for stage in self.stages:
            image = stage(image).relu()
            maps.append(image)
        shapes = torch.stack([torch.stack([torch.tensor(size) for size in x.shape[2:]]) for x in maps])
        starts = shapes.prod(1).cumsum(0) - shapes.prod(1)
        memory = torch.cat([x.flatten(2).transpose(1, 2) for x in maps], 1)
        batch, heads, levels, points = memory.shape[0], *self.sizes
        queries = self.queries.expand(batch, -1, -1)
        places = self.places(queries)
        for layer in self.layers:
            queries = layer["norm"](queries + layer["attention"](queries, queries, queries)[0])
            weights = layer["weights"](queries).reshape(batch, -1, heads, levels * points).softmax(3)
            offsets = layer["offsets"](queries).reshape(batch, -1, heads, levels, points, 2)
            scale = shapes.flip(1).to(memory.dtype)[:, None]
            locations = places.sigmoid()[:, :, None, None, None] + offsets / scale
            value = layer["value"](memory).reshape(batch, memory.shape[1], heads, -1)
            weights = weights.reshape(batch, -1, heads, levels, points)
            attended = ms_deform_attn(value, shapes, starts, locations, weights)
            queries = layer["norm"](queries + layer["output"](attended))
            places = places + layer["box"](queries)
        return self.classes(queries).sigmoid(), places.sigmoid()


@pytest.mark.parametrize("make", [RotatedDetector, DeformableDecoder])
def test_a_detector_is_verified_at_other_sizes(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = make().eval()
    bundle = opbridge.export(
        model,
        (torch.randn(2, 3, 64, 96),),
        path=tmp_path / "bundle",
        engines=ENGINES,
        dynamic_shapes=({0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC},),
    )
    assert bundle.verified, bundle.verification
    kernels = {item["target"] for item in bundle.manifest["operators"] if item["rung"] == "kernel"}
    operators = {"RotatedDetector": ["nms_rotated", "roi_align_rotated"], "DeformableDecoder": ["ms_deform_attn"]}
    assert kernels == {f"opbridge_vision::{name}" for name in operators[make.__name__]}
    for size in ((1, 64, 64), (2, 96, 128), (3, 72, 80)):
        image = torch.randn(size[0], 3, *size[1:])
        with torch.no_grad():
            expected = model(image)
        assert all(x.numel() for x in expected)
        for engine in ENGINES:
            for found, right in zip(opbridge.load(bundle.path, engine)(image.numpy()), expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(found), right, rtol=1e-3, atol=1e-3)
