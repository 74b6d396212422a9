"""Python may read what follows from weights and numbers alone: it is a constant of the model."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from opbridge.capture.capture import capture


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[Model, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("ready", torch.tensor(True))
        self.register_buffer("mask", torch.tensor([True, False, True, True, False, True]))
        self.inner = torch.nn.Module()
        self.inner.register_buffer("sizes", torch.tensor([2, 3]))
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.count = torch.tensor(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def _of_buffers(model: Model, x: torch.Tensor) -> torch.Tensor:
    if not model.ready:
        return x
    return x.reshape(-1, *model.inner.sizes.tolist()) * float(model.scale) + int(model.inner.sizes[0:1].numel())


def _of_attribute(model: Model, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, model.count.item(), 2) + model.inner.sizes.sum().item()


def _of_parameter(model: Model, x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(model.scale * 2)):
        x = x + 1
    return x if model.scale.abs() > 1 else -x


def _of_numbers(model: Model, x: torch.Tensor) -> torch.Tensor:
    for i in torch.arange(4).tolist():
        x = x * i + 1
    times = torch.linspace(0, 1, 5)
    for start, end in itertools.pairwise(times):
        x = x + (end - start).item()
    return x


def _written_into(model: Model, x: torch.Tensor) -> torch.Tensor:
    sizes = torch.zeros(3, dtype=torch.long)
    sizes[0] = 1
    sizes[1:] += 2
    return x.split([*sizes.tolist(), 1], 1)[1]


def _of_unknown_size(model: Model, x: torch.Tensor) -> torch.Tensor:
    kept = model.mask.nonzero().squeeze(1)
    return x[:, kept] if kept.numel() == 4 else x


def _of_numpy(model: Model, x: torch.Tensor) -> torch.Tensor:
    return x * float(np.prod(model.inner.sizes.cpu().numpy()))


def _of_elements(model: Model, x: torch.Tensor) -> torch.Tensor:
    steps = torch.cumprod(1 - torch.linspace(0.1, 0.2, 10), 0)
    for t in torch.arange(9, -1, -3):
        before = steps[t - 3] if t >= 3 else torch.tensor(1.0)
        x = x * steps[t] + before
    return x


def _as_sizes(model: Model, x: torch.Tensor) -> torch.Tensor:
    x = torch.nn.functional.pad(x, (model.inner.sizes[0], model.count - 1)).reshape(-1, model.inner.sizes.sum(), 2)
    x = x + torch.reshape(input=model.count, shape=(1,))
    x = x + torch.arange(1, model.inner.sizes[1]) + torch.linspace(0, 1, model.inner.sizes[0])
    return x + torch.zeros((model.inner.sizes.sum(), 1)) + x.sum((1, 2))[:, None, None].expand(-1, model.count + 2, 2)


_READS = [
    *(_of_buffers, _of_attribute, _of_parameter, _of_numbers, _written_into),
    *(_of_unknown_size, _of_numpy, _of_elements, _as_sizes),
]


@pytest.mark.quick("of_buffers", "of_numbers", "of_unknown_size", every=3)
@pytest.mark.parametrize("function", _READS)
def test_reads_of_constants(function: Callable[..., torch.Tensor]) -> None:
    model, x = Model(function), torch.randn(4, 6)
    captured = capture(model, (x,), dynamic_shapes=({0: "n"},))
    assert captured.converted == ()
    for size in (4, 7):
        x = torch.randn(size, 6)
        torch.testing.assert_close(captured.program.module()(x), model(x))


def _written_in_a_branch(model: Model, x: torch.Tensor) -> torch.Tensor:
    flag = torch.zeros(1)
    if x.sum() > 0:
        flag.add_(1)
    return x + 1 if flag.item() > 0 else x - 1


def _data_in_it(model: Model, x: torch.Tensor) -> torch.Tensor:
    pair = torch.zeros(2)
    pair[0] = x.sum()
    return x + 1 if pair[0] > 0 else x - 1


def _data_in_a_view(model: Model, x: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(2, 2)
    table[0].add_(x.sum())
    return x + 1 if table.sum() > 0 else x - 1


def _and_data(model: Model, x: torch.Tensor) -> torch.Tensor:
    return x if model.ready & (x.sum() > 0) else -x


@pytest.mark.quick("data_in_it", every=3)
@pytest.mark.parametrize("function", [_written_in_a_branch, _data_in_it, _data_in_a_view, _and_data])
def test_what_depends_on_data_is_not_constant(function: Callable[..., torch.Tensor]) -> None:
    model, x = Model(function), torch.ones(4, 6)
    captured = capture(model, (x,))
    assert {operator for operator, _ in captured.converted} == {"If"}
    for sign in (1, -1):
        torch.testing.assert_close(captured.program.module()(sign * x), model(sign * x))


@pytest.mark.slow
def test_a_buffer_that_changes_is_not_constant() -> None:
    def changes(model: Model, x: torch.Tensor) -> torch.Tensor:
        model.ready.logical_not_()
        return x + 1 if model.ready else x - 1

    model, x = Model(changes), torch.randn(4, 6)
    captured = capture(model, (x,))
    assert [operator for operator, _ in captured.converted] == ["If"]
    program, eager = captured.program.module(), copy.deepcopy(model)
    for _ in range(3):
        torch.testing.assert_close(program(x), eager(x))


@pytest.mark.slow
def test_random_numbers_are_not_constants() -> None:
    def draws(model: Model, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.rand(()) > 0.5 and model.ready else x

    captured = capture(Model(draws), (torch.randn(4, 6),))
    assert {operator for operator, _ in captured.converted} == {"If"}
