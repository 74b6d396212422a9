"""Checks of installed libraries are left out while a model is captured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.capture.capture import capture

pytestmark = pytest.mark.newest

DYNAMIC = torch.export.Dim.DYNAMIC

LIBRARY = """
import torch

class Refused(ValueError):
    pass

def checked(function):
    def inner(x):
        assert x.min() >= -100, "too small"
        if (x > 100).any():
            raise Refused("too large")
        return function(x)
    return inner

@checked
def center(x):
    middle = float(x.shape[0] - 1) / 2
    return x - middle

def half(x):
    sizes = tuple(int(size) for size in x.shape)
    return x[: int(float(sizes[0]) / 1.2)]

def packed(x):
    if x.shape[0] >= 64:
        x = x.contiguous()
    return x

def signed(x):
    if x.sum() > 0:
        return x
    return -x
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_of_a_test.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("library_of_a_test")
    del sys.modules["library_of_a_test"]


class Calls(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.sweep
def test_sizes_stay_dynamic_and_checks_are_left_out(library: ModuleType, tmp_path: Path) -> None:
    model = Calls(lambda x: library.half(library.center(x)))
    bundle = opbridge.export(model, (torch.randn(12),), path=tmp_path / "bundle", dynamic_shapes=({0: DYNAMIC},))
    assert bundle.verified
    session = opbridge.load(bundle.path)
    for length in (12, 18, 30, 7):
        x = torch.randn(length)
        (found,) = session.run({"x": x.numpy()}).values()
        torch.testing.assert_close(torch.from_numpy(found), model(x))


@pytest.mark.sweep
def test_checks_that_are_left_out_are_named(library: ModuleType) -> None:
    captured = capture(Calls(library.center), (torch.randn(12),), dynamic_shapes=({0: DYNAMIC},))
    assert dict(captured.unchecked) == {
        "library_of_a_test.py:9": "assert x.min() >= -100",
        "library_of_a_test.py:10": "if (x > 100).any()",
    }


@pytest.mark.sweep
def test_the_library_is_as_before_after_the_capture(library: ModuleType) -> None:
    capture(Calls(library.center), (torch.randn(12),), dynamic_shapes=({0: DYNAMIC},))
    with pytest.raises(library.Refused):
        library.center(torch.full((3,), 1000.0))


def test_strides_do_not_restrict_a_size(library: ModuleType) -> None:
    captured = capture(Calls(library.packed), (torch.randn(12),), dynamic_shapes=({0: DYNAMIC},))
    assert captured.unchecked == ()


@pytest.mark.slow
def test_branches_of_a_library_are_not_left_out(library: ModuleType) -> None:
    captured = capture(Calls(library.signed), (torch.randn(12),))
    assert captured.unchecked == ()
    assert [operator for operator, _ in captured.converted] == ["If"]


def test_checks_of_the_user_are_left_out_and_named() -> None:
    def model(x: Tensor) -> Tensor:
        assert x.min() >= -100
        return x

    ((source, statement),) = capture(model, (torch.randn(12),)).unchecked
    assert source == f"tests/capture/test_library_checks.py:{model.__code__.co_firstlineno + 1}"
    assert statement == "assert x.min() >= -100"


@pytest.mark.slow
def test_checks_of_distributions_are_left_out() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        normal = torch.distributions.Normal(x, x.exp(), validate_args=True)
        chosen = torch.distributions.Categorical(probs=x.abs() + 0.1, validate_args=True)
        return normal.log_prob(2 * x), chosen.entropy()

    captured = capture(model, (torch.randn(3, 4),), dynamic_shapes={"x": {0: DYNAMIC}})
    x = torch.randn(5, 4)
    for found, expected in zip(captured.program.module()(x), model(x), strict=True):
        torch.testing.assert_close(found, expected)
