"""Bags of embeddings that are the rows of a matrix of indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

import opbridge  # noqa: E402

pytestmark = pytest.mark.newest

# The second bag of the padding index 3 is empty.
BAGS = torch.tensor([[1, 3, 0, 1], [3, 3, 3, 3], [4, 2, 2, 3]])


class Bag(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(6, 5, **options)

    def forward(self, indices: Any, weights: Any = None) -> Any:
        return self.bag(indices, per_sample_weights=weights)


@pytest.mark.quick("mean-None", every=3)
@pytest.mark.parametrize("padding", [None, 3], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size_are_reduced(mode: str, padding: int | None, tmp_path: Path) -> None:
    model = Bag(mode=mode, padding_idx=padding)
    bundle = opbridge.export(model, (BAGS,), path=tmp_path / "bundle", dynamic_shapes=({0: "bags"},))
    assert bundle.verified, bundle.verification
    types = {node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}
    assert "Gather" in types
    assert not types & {"Loop", "ScatterElements", "ScatterND"}, types
    (found,) = opbridge.load(bundle.path)(BAGS.numpy())
    torch.testing.assert_close(torch.from_numpy(found), model(BAGS).detach())


def test_weights_of_the_samples(tmp_path: Path) -> None:
    args = (BAGS, torch.rand(3, 4))
    bundle = opbridge.export(Bag(mode="sum"), args, path=tmp_path / "bundle")
    assert bundle.verified, bundle.verification


@pytest.mark.slow
def test_an_unknown_number_of_indices_for_a_maximum(tmp_path: Path) -> None:
    bundle = opbridge.export(Bag(mode="max"), (BAGS,), path=tmp_path / "bundle", dynamic_shapes=({1: "indices"},))
    assert bundle.verified, bundle.verification
