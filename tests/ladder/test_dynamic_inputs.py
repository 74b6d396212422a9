"""The dynamic dimensions of the inputs survive the decompositions, or the export fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opbridge
from opbridge.errors import TranslationError

Dim = torch.export.Dim


def test_a_decomposition_that_fixes_a_dynamic_size_fails(tmp_path: Path) -> None:
    @opbridge.decomposition("aten::flip", overrides="a loop over the rows")
    def flip_by_rows(self: torch.Tensor, dims: list[int]) -> torch.Tensor:
        return torch.stack([self[i] for i in reversed(range(int(self.shape[0])))])

    options = {"path": tmp_path / "b", "dynamic_shapes": {"x": {0: "n"}}, "ops": [flip_by_rows], "verify": False}
    with pytest.raises(TranslationError, match="fixes the size: dimension 0 of x") as caught:
        opbridge.export(lambda x: x.flip(0) + 1, (torch.randn(4, 3),), **options)
    assert "leave the dimension out of dynamic_shapes" in caught.value.fix
