"""Dynamic sizes stay dynamic through Python's functions of numbers, and through torch functions of numbers."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import opbridge
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.errors import CaptureError
from opbridge.torch_graph.python_sizes import converts, dynamic_builtins, dynamic_conversions
from opbridge.torch_graph.sources import SourceLine

Model = Callable[[torch.Tensor], torch.Tensor]


def resampled(x: torch.Tensor) -> torch.Tensor:
    length = torch.ceil(torch.as_tensor(3 * x.shape[0] / 2)).long()
    return x.repeat_interleave(2, 0)[:length]


def at_half_size(x: torch.Tensor) -> torch.Tensor:
    height = int(float(x.shape[0]) / 2 + 0.5)
    return torch.nn.functional.interpolate(x[None, None], size=(height, 6))


def of_checked_size(x: torch.Tensor) -> torch.Tensor:
    return x * _checked(x.shape[0])


def _checked(size: int | tuple[int, ...]) -> int:
    if not (isinstance(size, int) and size > 0):
        raise TypeError(f"size must be a positive int, not {size}.")
    return size


def of_pair(x: torch.Tensor) -> torch.Tensor:
    size: Any = x.shape[0]
    pair = (size, 3) if isinstance(size, (tuple, int)) else size
    height, width = pair
    return x.new_zeros(height, width) + x


def to_power_of_two(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(2 ** ceil(log2(x.shape[0])), 3)


def by_the_middle_size(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if sorted([9, x.shape[0], 12])[1] == 12 else x


MODELS: dict[str, Model] = {
    "isinstance": of_checked_size,
    "isinstance with several types": of_pair,
    "len": lambda x: x[: len(x) - 1],
    "min": lambda x: x[: min(3, x.shape[0])],
    "max with a default": lambda x: x * max(x.shape, default=0),
    "max with a key": lambda x: x * max(x.shape, key=lambda size: abs(size - 10)),
    "min with a key": lambda x: x * (1 + min(range(2), key=lambda axis: x.shape[axis])),
    "sorted": lambda x: x[None].sum((1, 2)) / torch.as_tensor(sorted([*x.shape, 9])),
    "sorted with a key": lambda x: x.sum() * torch.as_tensor(sorted((8, 3, x.shape[0]), key=lambda n: n // 4 * -1.0)),
    "sorted from the largest": lambda x: x.sum() / torch.as_tensor(sorted([*x.shape, 9.5], reverse=True)),
    "float": lambda x: x * float(x.shape[0]),
    "int": lambda x: x[: int(x.shape[0] * 0.3)],
    "int of an int": lambda x: x[: int(x.shape[0])] if isinstance(x.shape[1], int) else x,
    "int of a text": lambda x: x[int("1") :] * float(x.shape[0]),
    "sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "sqrt of a number": lambda x: x * math.sqrt(2),
    "a power of two": lambda x: torch.nn.functional.pad(x, (0, 0, 0, 2 ** math.ceil(math.log2(len(x))) - len(x))),
    "imported by name": to_power_of_two,
    "bit_length": lambda x: torch.nn.functional.pad(x, (0, 0, 0, (1 << (len(x) - 1).bit_length()) - len(x))),
    "bit_length of 0": lambda x: x * (x.shape[0] // 100).bit_length(),
    "logarithm of a power": lambda x: x[: int(math.log(x.shape[0], 3))] * int(math.log(x.shape[0] ** 5, 10)),
    "quotient of a decimal": lambda x: x[: int(x.shape[0] * 0.1 // 0.3)] * (x.shape[0] // 0.7),
    "rest of a decimal": lambda x: x[: int(x.shape[0] * 0.3 % 0.9 * 10)] * (1.3 % x.shape[0]),
    "quotient of a whole float": lambda x: x[: int(x.shape[0] // 2.0)] * (x.shape[0] % 3.0),
    "last bits": lambda x: x[: (x.shape[0] & 1) + 1] if x.shape[0] & 3 < 9 else x,
    "bits": lambda x: x * (x.shape[0] | 5) + (6 ^ x.shape[0]) - (x.shape[0] & 10),
    "sorted in a condition": by_the_middle_size,
    "bit_length in a check": lambda x: x.new_zeros(1 << x.shape[0].bit_length())[: x.shape[0]] + x[:, 0],
    "sqrt of NumPy": lambda x: x / np.sqrt(x.shape[0]) * np.sqrt(2),
    "ceil of NumPy": lambda x: x[: int(np.ceil(x.shape[0] / 3))],
    "padding of a pool": lambda x: torch.nn.functional.avg_pool2d(x[None], 2, padding=(x.shape[0] % 2, 1)),
    "as_tensor": resampled,
    "as_tensor of a list": lambda x: x.sum() * torch.as_tensor([[x.shape[0] / 3, 2], [1.5, x.shape[0]]]),
    "as_tensor of ints": lambda x: x.sum().long() * torch.as_tensor((x.shape[0], 2)),
    "linspace of size": lambda x: x * torch.linspace(-1, 1, x.shape[0])[:, None],
    "linspace to size": lambda x: x * torch.linspace(0, x.shape[0] - 1, steps=x.shape[0])[:, None],
    "linspace of 1": lambda x: x.sum() + torch.linspace(3, 5, x.shape[0] // x.shape[0]),
    "linspace in float64": lambda x: torch.linspace(0.5, x.shape[0], 5, dtype=torch.float64) + x.sum(),
    "a size": at_half_size,
}


@pytest.mark.quick("sqrt", "a power of two", every=3)
@pytest.mark.parametrize("name", MODELS)
def test_a_size_stays_dynamic(name: str) -> None:
    model, x = MODELS[name], torch.randn(7, 3)
    captured = capture(model, (x,), dynamic_shapes=({0: "n"},), rewrites=Catalog.load().rewrites())
    program = captured.program.module()
    for size in (7, 2, 12, 33, 81, 100, 243):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), model(x))


def padding_of(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    longest = int(lengths.max())
    return x.masked_fill((torch.arange(longest) >= lengths[:, None])[..., None], 0.0)


def between(x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    return x[:, bounds[0] : bounds[1]]


@pytest.mark.parametrize("model", [padding_of, between])
def test_a_number_that_a_tensor_holds_becomes_a_size(model: Callable[..., torch.Tensor]) -> None:
    rows = torch.export.Dim("rows"), torch.export.Dim("length")
    captured = capture(
        model,
        (torch.randn(2, 5, 3), torch.tensor([2, 5])),
        dynamic_shapes=({0: rows[0], 1: rows[1]}, {0: rows[0]}),
        rewrites=Catalog.load().rewrites(),
    )
    x, numbers = torch.randn(3, 7, 3), torch.tensor([1, 7, 4])
    torch.testing.assert_close(captured.program.module()(x, numbers), model(x, numbers))


def test_conversions_are_replaced_only_in_the_file_and_only_during_the_capture() -> None:
    with dynamic_conversions([__file__]):
        assert float is not builtins.float
        assert isinstance(1.5, float)
        assert issubclass(bool, int)
        assert {builtins.int: 1, builtins.float: 2}[int] == 1
        assert (int("7", base=8), float("1.5"), int.from_bytes(b"\1", "big")) == (7, 1.5, 1)
        assert type(int(2.5)) is builtins.int
        assert opbridge.errors.__dict__.get("float") is None
    assert float is builtins.float


@pytest.mark.slow
def test_a_file_in_which_the_replacement_does_not_help() -> None:
    def fixed(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(7, int(x.shape[1]), dtype=torch.float32) * float(x.shape[0])

    with pytest.raises(CaptureError, match="only size 7"):
        capture(fixed, (torch.randn(7, 3),), dynamic_shapes=({0: "n"},))
    assert float is builtins.float


@pytest.mark.sweep
def test_in_the_engine(tmp_path: Path) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        names = ("float", "int", "sqrt", "as_tensor", "as_tensor of a list", "linspace to size", "a size")
        names += ("max with a key", "min with a key", "sorted", "sorted with a key")
        return tuple(MODELS[name](x) for name in names)

    bundle = opbridge.export(model, (torch.randn(7, 3),), path=tmp_path / "b", dynamic_shapes=({0: "n"},))
    assert bundle.verified


def test_a_conversion_elsewhere_takes_no_capture_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first capture is refused because of the remainder; the second has the branch, and a dynamic number too."""

    def model(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 4:
            x = torch.cat([x, x[:1]])
        return x * int(x.shape[0] / 256 + 1)

    export, numbers = torch.export.export, []

    def counted(*arguments: Any, **options: Any) -> Any:
        numbers.append(arguments)
        return export(*arguments, **options)

    monkeypatch.setattr(torch.export, "export", counted)
    captured = capture(model, (torch.randn(8, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert len(numbers) == 2
    for length in (9, 300):
        x = torch.randn(length, 2)
        torch.testing.assert_close(captured.program.module(check_guards=False)(x), model(x))


def test_functions_that_sympy_calls_are_not_replaced() -> None:
    namespace: dict[str, Any] = {"__name__": "sympy.core.add"}
    exec("def in_order(values, key):\n    return sorted(values, key=key)", namespace)
    seen: list[int] = []
    with dynamic_builtins():
        assert namespace["in_order"]([2, 1], lambda value: seen.append(value) or value) == [1, 2]
    assert seen == [2, 1], "each key is computed once"


def test_replacements_live_as_long_as_the_process() -> None:
    """Dynamo knows functions by their ids, which Python gives to others when a function is gone."""
    found = []
    for _ in range(2):
        with dynamic_builtins():
            found.append((len, min, max, sorted, math.sqrt, np.sqrt, np.ceil))
    assert all(one is other for one, other in zip(*found, strict=True))
    assert found[0][-1] is not np.ceil


@pytest.mark.parametrize(("text", "expected"), [("n = int(x.shape[0] / 2)", True), ("scores = q.float() @ k", False)])
def test_methods_of_tensors_convert_no_sizes(text: str, expected: bool) -> None:
    assert converts(SourceLine("model.py", 1, text=text)) is expected
