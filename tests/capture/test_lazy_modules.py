"""Lazy parameters that a module computes are initialized; those that are drawn at random are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter, is_lazy

from opbridge.capture.capture import capture
from opbridge.errors import CaptureError


class Window(LazyModuleMixin, nn.Module):
    """Computes its weights when it runs for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.window = UninitializedParameter(requires_grad=False)

    def initialize_parameters(self, x: torch.Tensor) -> None:
        """Compute the weights."""
        if self.has_uninitialized_params():
            self.window.materialize((x.shape[-1],))
            self.window.copy_(torch.hann_window(x.shape[-1]))

    def forward(self, x: torch.Tensor) -> Any:
        """Weight each element."""
        return self.window * x


def test_computed_parameters_are_initialized_on_a_copy() -> None:
    module, x = nn.Sequential(Window(), nn.Dropout()), torch.randn(4, 6)
    captured = capture(module, (x,), dynamic_shapes=({0: "n"},))
    assert is_lazy(module[0].window)
    assert captured.was_training
    torch.testing.assert_close(captured.program.module()(x[:3]), torch.hann_window(6) * x[:3])


def test_random_parameters_are_refused() -> None:
    module = nn.Sequential(Window(), nn.LazyLinear(3))
    with pytest.raises(CaptureError, match="has no shape yet"):
        capture(module, (torch.randn(4, 6),))
    assert is_lazy(module[0].window)
