"""Numbers that ``forward`` draws with Python or NumPy must not become constants of the model."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from opbridge.capture.capture import capture  # noqa: E402
from opbridge.capture.failures import CaptureFailure  # noqa: E402


class RandomLength(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[: random.randint(1, 5)]


class RandomNumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * np.random.rand()


class RandomArray(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(np.random.rand(3)).float()


class LayerDrop(nn.Module):
    """Draws a number that is used in training only, as speech encoders do."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and np.random.uniform(0, 1) < 0.5:
            return x
        np.random.uniform(0, 1)
        return x * 2


class Seeded(nn.Module):
    """Draws the same numbers in every call."""

    def forward(self, x: Tensor) -> Tensor:
        return x * random.Random(0).random()


@pytest.mark.parametrize("model", [RandomLength, RandomNumber, RandomArray])
def test_a_number_that_was_drawn_is_no_constant(model: type[nn.Module]) -> None:
    before = random.getstate()
    with pytest.raises(
        CaptureFailure, match=r"draws random numbers with Python or NumPy at .*test_python_draws\.py:\d+;"
    ) as caught:
        capture(model(), (torch.randn(8, 3),))
    assert caught.value.finding.code == "python-random"
    assert "torch.randint(0, 5, ()).item()" in caught.value.fix
    changed = before != random.getstate()
    assert changed == (model is RandomLength)  # The draw of the first capture, and no others.


@pytest.mark.parametrize("model", [LayerDrop, Seeded])
def test_numbers_without_an_effect_are_allowed(model: type[nn.Module]) -> None:
    capture(model(), (torch.randn(8, 3),))


class AsTheFixSays(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[: torch.randint(0, 5, ()).item()], x * torch.rand(())


def test_the_fix_works() -> None:
    captured = capture(AsTheFixSays(), (torch.randn(8, 3),))
    first, _ = (node.meta["val"] for node in next(iter(captured.program.graph.find_nodes(op="output"))).args[0])
    assert isinstance(first.shape[0], torch.SymInt)
