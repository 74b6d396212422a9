"""Shifts of every integer type, by tensors and by numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opbridge


class Shifts(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        tensors = a << b, a >> b, torch.bitwise_left_shift(a, b), torch.bitwise_right_shift(a, b)
        return *tensors, a << 2, a >> 3, torch.bitwise_left_shift(a, 1), torch.bitwise_right_shift(5, b)


@pytest.mark.newest
@pytest.mark.quick("uint8")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_shifts(dtype: torch.dtype, tmp_path: Path) -> None:
    info = torch.iinfo(dtype)
    a = torch.tensor([0, 1, 2, 3, info.max, info.min, 100, info.max // 3, info.min // 2, 7], dtype=dtype)
    b = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 1, info.bits - 1], dtype=dtype)
    bundle = opbridge.export(Shifts().eval(), (a, b), path=tmp_path / "bundle", verify=False)
    for result, expected in zip(opbridge.load(bundle.path)(a.numpy(), b.numpy()), Shifts()(a, b), strict=True):
        np.testing.assert_array_equal(result, expected.numpy(), strict=True)
