"""A program that writes into parts of a tensor with dynamic sizes keeps these sizes dynamic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import opbridge


def scaled_query(x: Tensor) -> Tensor:
    query, key, value = (x * 2).unbind(1)
    query *= 0.5
    return query * key + value


def written_through(x: Tensor) -> Tensor:
    y = x * 2
    first, second, _ = y.unbind(1)
    first[:, :1].add_(second[:, 1:2])
    return y


def parts_of_split(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    first, second = y.split([1, 2], 1)
    second.sigmoid_()
    return y, first


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("model", [scaled_query, written_through, parts_of_split], ids=lambda model: model.__name__)
def test_sizes_stay_dynamic(model: Callable[[Tensor], object], tmp_path: Path) -> None:
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    assert opbridge.export(model, (torch.randn(2, 3, 6, 5),), path=tmp_path / "b", dynamic_shapes=shapes).verified
