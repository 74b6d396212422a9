"""Numbers after branches on sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import opbridge


class Extremes(nn.Module):
    """A minimum, a maximum, and a size that is what it is."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        window = n if n <= 4 else 4
        least = 3
        if not n < 3:
            least = n
        same = 5 if n == 5 else n
        return pad(x, (0, -n % window)).reshape(-1, window).sum(1) * least - same


@pytest.mark.slow
def test_branches_become_minimum_and_maximum(tmp_path: Path) -> None:
    bundle = opbridge.export(
        Extremes(), (torch.arange(6.0),), path=tmp_path / "out", dynamic_shapes={"x": {0: torch.export.Dim("n")}}
    )
    assert bundle.verified
    count = Counter(node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node)
    assert count["Min"] == count["Max"] == 1
    assert not count.keys() & {"If", "Where", "Less", "Equal"}
