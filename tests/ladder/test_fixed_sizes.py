"""A dimension that was captured as dynamic is dynamic in the model, or the export fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opbridge
from opbridge.errors import TranslationError

UNROLLED = """
import opbridge, torch

@opbridge.decomposition("aten::relu")
def unrolled(self):
    return torch.stack([row.clamp(min=0) for row in self.unbind(0)])
"""


def test_a_decomposition_that_specializes_a_size(tmp_path: Path) -> None:
    (tmp_path / "unrolled.py").write_text(UNROLLED)
    ops = [tmp_path / "unrolled.py"]
    options = {"path": tmp_path / "b", "dynamic_shapes": {"input": {0: "rows"}}}
    with pytest.raises(TranslationError, match=r"a decomposition .* fixes the size: dimension 0 of input") as caught:
        opbridge.export(torch.nn.ReLU(), (torch.randn(3, 4),), ops=ops, **options)
    assert caught.value.fix.startswith("leave the dimension out of dynamic_shapes, or ")
    assert not (tmp_path / "b").exists()
    static = opbridge.export(torch.nn.ReLU(), (torch.randn(3, 4),), ops=ops, path=tmp_path / "b")
    assert static.verified
