"""Functions with a cache are called without it for dynamic sizes, and keep it for everything else."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import opbridge
from opbridge.capture.capture import capture
from opbridge.errors import CaptureError


@functools.lru_cache(maxsize=4)
def mask(size: int) -> torch.Tensor:
    return torch.ones(size, size).tril()


class Positions(nn.Module):
    @functools.cache  # noqa: B019 - the construct under test
    def positions(self, size: int) -> torch.Tensor:
        return torch.arange(size)[:, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.positions(x.shape[0])


def in_closure() -> Any:
    @functools.cache
    def scale(shape: tuple[int, ...]) -> float:
        return shape[0] / shape[1]

    return lambda x: x * scale(tuple(x.shape))


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in self.masks:
            self.masks[x.shape[0]] = torch.ones(x.shape[0], x.shape[0]).tril()
        return self.masks[x.shape[0]] @ x


class RemembersAtOnce(Remembers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.masks.setdefault(x.shape[0], torch.ones(x.shape[0], x.shape[0]).tril()) @ x


class Tables(nn.Module):
    @staticmethod
    @functools.cache
    def rows(size: int) -> torch.Tensor:
        return torch.ones(size, size).tril()

    @classmethod
    @functools.cache
    def columns(cls, size: int) -> torch.Tensor:
        return torch.arange(1.0, size + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(x.shape[0]) @ x * self.columns(x.shape[1])


class InheritedTables(Tables):
    pass


def table_in_closure() -> Any:
    @functools.cache
    def table(size: int) -> torch.Tensor:
        return torch.arange(1.0, size + 1)[:, None]

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * table(x.shape[0])

    return lambda x: scaled(x)


TABLES: dict[int, torch.Tensor] = {}


class InGlobals(nn.Module):
    shared: ClassVar[list[tuple[torch.Tensor, ...]]] = []
    last: ClassVar[torch.Tensor | None] = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] not in TABLES:
            TABLES[x.shape[1]] = torch.arange(1.0, 1 + x.shape[1])
        if not InGlobals.shared:
            InGlobals.shared.append((torch.ones(3), torch.ones(3)))
        if InGlobals.last is None:
            InGlobals.last = torch.ones(3)
        return x * TABLES[x.shape[1]] * InGlobals.shared[0][0] * InGlobals.last


def dict_in_closure() -> Any:
    tables = {}

    def scaled(x: torch.Tensor) -> torch.Tensor:
        if "table" not in tables:
            tables["table"] = torch.arange(1.0, 4)
        return x * tables["table"]

    return scaled


MODELS = {
    "function": lambda: lambda x: mask(x.shape[0]) @ x,
    "method": Positions,
    "closure": in_closure,
    "static method": Tables,
    "dict": Remembers,
}


@pytest.mark.quick("static method", every=9)
@pytest.mark.parametrize("name", MODELS)
def test_a_size_stays_dynamic(name: str) -> None:
    model = MODELS[name]()
    captured = capture(model, (torch.randn(5, 3),), dynamic_shapes=({0: "n"},))
    for rows in (5, 2, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(captured.program.module()(x), model(x))


@pytest.mark.sweep
def test_a_dict_has_the_keys_that_it_had() -> None:
    shared: dict[Any, Any] = {}

    def model(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in shared:
            shared[x.shape[0]] = torch.ones(x.shape[0], 1)
        return x * shared[x.shape[0]]

    for _ in range(2):
        capture(model, (torch.ones(5, 3),), dynamic_shapes=({0: "n"},))
        assert not [key for key in shared if not isinstance(key, int)]


def test_an_error_of_the_model_itself_is_reported_before_a_size_as_a_key() -> None:
    tables: dict[int, torch.Tensor] = {}

    def model(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in tables:
            tables[x.shape[0]] = torch.arange(x.shape[0])
        return x.view(-1, 5) + tables[x.shape[0]]

    with pytest.raises(CaptureError, match="fails on its example inputs in PyTorch itself"):
        capture(model, (torch.rand(4, 3),), dynamic_shapes={"x": {0: "n"}})


def test_an_error_of_converted_code_is_no_error_of_the_model() -> None:
    file = Path(opbridge.__file__).parent / "capture" / "control_flow" / "flow.py"
    names: dict[str, Any] = {}
    exec(compile("def fail(): raise AttributeError('no tracer')", str(file), "exec"), names)

    def model(x: torch.Tensor) -> torch.Tensor:
        if type(x) is not torch.Tensor:
            raise TypeError("in a capture")
        return names["fail"]()

    with pytest.raises(CaptureError, match=r"can't capture.*in a capture"):
        capture(model, (torch.rand(4, 3),))


@pytest.mark.parametrize("make", [Tables, InheritedTables, table_in_closure, InGlobals, dict_in_closure])
def test_no_cache_keeps_a_tensor_without_data(make: Any) -> None:
    model = make()
    capture(model, (torch.randn(4, 3),))
    assert model(torch.ones(4, 3)).numpy().sum() > 0


def test_the_caches_are_put_back() -> None:
    own, method = mask, vars(Positions)["positions"]
    test_a_size_stays_dynamic("function")
    assert mask is own
    assert vars(Positions)["positions"] is method
    assert mask(3) is mask(3)


@pytest.mark.sweep
def test_the_fix_of_a_dict_of_sizes_works_as_it_is_printed() -> None:
    x = torch.randn(5, 3)
    with pytest.raises(CaptureError) as caught:
        capture(RemembersAtOnce(), (x,), dynamic_shapes=({0: "n", 1: "m"},))
    assert "uses the size of dimension 0 of x as a key" in caught.value.message
    assert "leave dimension 0 of x out of dynamic_shapes if its size is always 5" in caught.value.fix
    assert capture(RemembersAtOnce(), (x,), dynamic_shapes=({1: "m"},)).program.range_constraints


@functools.cache
def positions(count: int) -> torch.Tensor:
    return torch.arange(count).float()


@functools.lru_cache(maxsize=4)
def tables(count: int) -> dict[str, list[torch.Tensor]]:
    return {"tables": [torch.ones(count, count).tril()]}


@functools.lru_cache
def name(count: int) -> str:
    return f"of {count}"


def attended(x: torch.Tensor) -> torch.Tensor:
    return (x + positions(8)) @ tables(8)["tables"][0] if name(8) == "of 8" else x


@pytest.mark.parametrize("captures", [1, 2])
def test_a_capture_leaves_no_results_in_a_cache(captures: int) -> None:
    for cached in (positions, tables, name):
        cached.cache_clear()
    x = torch.randn(3, 8)
    programs = [capture(attended, (x,), dynamic_shapes=({0: "n"},)).program for _ in range(captures)]
    assert name.cache_info().currsize == 1  # What holds no tensors of a capture is kept.
    expected = attended(x)
    assert type(expected) is torch.Tensor
    for program in programs:
        torch.testing.assert_close(program.module()(x), expected)
