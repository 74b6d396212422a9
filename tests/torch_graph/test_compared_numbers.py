"""Inputs made of the numbers that a model compares tensors with."""

from __future__ import annotations

import pytest
import torch

from opbridge.torch_graph.compared_numbers import compared_numbers, filled


def test_numbers_of_all_graphs() -> None:
    def inner(x):
        return torch.where(x < -3.5, x * 2, x)

    class Model(torch.nn.Module):
        def forward(self, x):
            y = torch.cond((x == 77).all(), inner, lambda x: x + 1, (x,))
            return torch.where(x > 0, y, -y)  # 0 is among any inputs.

    program = torch.export.export(Model(), (torch.ones(3),))
    assert compared_numbers(program.graph_module) == (77, 78, 76, -3.5, -1.75, -5.25)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 300.5), (torch.int64, 300), (torch.uint8, 255)])
def test_filled(dtype: torch.dtype, expected: float) -> None:
    assert filled(torch.zeros(2, dtype=dtype), 300.5).tolist() == [expected] * 2
