"""Fresh inputs keep the example's character; sizes keep the program's constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verify_models import Function, captured

from opbridge.proof.fresh import BOLD, CONSERVATIVE, SHUFFLED, fresh_tensor
from opbridge.proof.inputs import InputSpecs, to_numpy, to_torch
from opbridge.verify import verify_captured

Dim = torch.export.Dim


def fresh(example: torch.Tensor, shape: Any = None, boldness: int = BOLD, seed: int = 0) -> torch.Tensor:
    return fresh_tensor(example, tuple(shape or example.shape), np.random.default_rng(seed), boldness)


def test_floats_follow_the_distribution_and_stay_in_range() -> None:
    image = fresh(torch.rand(3, 40, 40), (3, 50, 50))
    assert image.shape == (3, 50, 50)
    assert image.min() >= 0
    assert image.max() <= 1
    normal = torch.randn(5000) * 3 + 10
    made = fresh(normal)
    assert abs(float(made.mean() - 10)) < 0.3
    assert abs(float(made.std() - 3)) < 0.3
    assert not torch.isin(made, normal).all()


def test_integers_stay_in_range_and_sorted() -> None:
    tokens = torch.randint(5, 40, (4, 30))
    made = fresh(tokens)
    assert int(made.min()) >= int(tokens.min())
    assert int(made.max()) <= int(tokens.max())
    offsets = torch.tensor([0, 3, 3, 9, 20])
    assert (fresh(offsets).diff() >= 0).all()
    assert (fresh(torch.rand(9).sort(descending=True)[0]).diff() <= 0).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_masks_have_both_values_and_no_row_becomes_empty(dtype: torch.dtype) -> None:
    made = fresh(torch.ones(6, 9, dtype=dtype)).bool()
    assert made.any()
    assert not made.all()
    assert made.any(-1).all()
    causal = torch.ones(8, 8).tril().to(dtype)
    made = fresh(causal, (11, 11)).int()
    assert (made.diff(dim=-1) <= 0).all()
    assert made.any(-1).all()


def test_structure_is_kept() -> None:
    boxes = torch.rand(20, 4)
    boxes[:, 2:] += boxes[:, :2]
    made = fresh(boxes)
    assert (made[:, 2:] >= made[:, :2]).all()
    rows = fresh(torch.softmax(torch.randn(6, 10), -1))
    assert torch.allclose(rows.sum(-1), torch.ones(6))
    matrix = torch.randn(5, 5)
    torch.linalg.cholesky(fresh(matrix @ matrix.T + torch.eye(5)))
    masked = torch.randn(6, 8).masked_fill(torch.rand(6, 8) < 0.3, -torch.inf)
    assert torch.isneginf(fresh(masked)).any()
    assert torch.isfinite(fresh(masked)).any(-1).all()


def test_boldness_falls_back_to_the_examples_own_values() -> None:
    count = torch.tensor(5)
    assert int(fresh(count)) == 4
    assert int(fresh(count, boldness=CONSERVATIVE)) == 5
    values = torch.tensor([1.5, 2.5, 7.0])
    assert torch.isin(fresh(values, boldness=SHUFFLED), values).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 3)])
def test_every_dtype_and_shape_survives_numpy(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    example = torch.ones(shape, dtype=dtype)
    made = fresh(example)
    assert (made.dtype, made.shape) == (dtype, example.shape)
    array = to_numpy(made)
    assert torch.equal(to_torch(array, example), made)
    if dtype is torch.complex64:
        assert array.shape == (*shape, 2)


class Recording:
    def __init__(self) -> None:
        self.fed: list[Any] = []

    def run(self, feeds: Any) -> Any:
        self.fed.append(feeds)
        return {}


def test_related_dimensions_and_keyword_order() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, scale: torch.Tensor, bias: torch.Tensor, mode: str) -> torch.Tensor:
            return x * scale + bias.sum()

    n = Dim("n", min=3, max=8)
    args, kwargs = (torch.randn(4, 2),), {"bias": torch.randn(5), "scale": torch.rand(4, 1), "mode": "a"}
    item = captured(Model(), args, {"x": {0: n}, "bias": {0: n + 1}, "scale": {0: n}, "mode": None}, kwargs)
    specs = InputSpecs(item)
    for sizes in specs.sizes.others(1):
        shapes = {name: array.shape for name, array in specs.feeds(specs.fresh(sizes, 0, BOLD)).items()}
        assert shapes["x"][0] == shapes["scale"][0] == shapes["bias"][0] - 1
        assert 3 <= shapes["x"][0] <= 8
    engine = Recording()
    found = verify_captured(item, engine, engine="none")
    assert len(engine.fed) == 3
    assert found.eager_matches_capture is True


def test_dynamic_integer_input_takes_other_values() -> None:
    item = captured(Function(lambda x, n: x * n), (torch.randn(3), 4), ({}, Dim.DYNAMIC))
    engine = Recording()
    verify_captured(item, engine, engine="none")
    values = [int(feeds[item.input_names[1]]) for feeds in engine.fed]
    assert values[0] == 4
    assert len(set(values)) == 3
    assert engine.fed[0][item.input_names[1]].dtype == np.int64


def test_a_batch_of_two_gets_two_other_sizes_in_every_dimension() -> None:
    shapes = ({0: Dim("h"), 1: Dim("n")},)
    item = captured(Function(lambda x: x + 1), (torch.randn(24, 2),), shapes)
    cases = verify_captured(item, Recording(), engine="none").cases
    for name in cases[0].sizes:
        assert len({case.sizes[name] for case in cases}) == 3


def test_sizes_that_pytorch_refuses_are_reported() -> None:
    class Picky(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._check(x.shape[0] % 4 == 0)
            return x + 1

    item = captured(Picky(), (torch.randn(8, 3),), ({0: Dim.AUTO},))
    found = verify_captured(item, Recording(), engine="none")
    assert all(size % 4 == 0 for case in found.cases for size in case.sizes.values())
    assert len(found.cases) == 3
    assert any("PyTorch refuses" in note for case in found.cases for note in case.notes)


def test_dimension_without_another_size_is_noted() -> None:
    item = captured(Function(lambda x: x + 1), (torch.randn(3, 3),), ({0: Dim("n", min=3, max=4)},))
    found = verify_captured(item, Recording(), engine="none")
    assert len(found.cases) == 2
    assert "sizes of the dynamic dimensions could not all be tried" in found.cases[0].notes[0]
