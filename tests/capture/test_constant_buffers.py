"""Python may read a buffer that forward does not change: it is a constant of the model."""

from __future__ import annotations

import pytest
import torch

from opbridge.capture.capture import capture
from opbridge.errors import CaptureError


class Model(torch.nn.Module):
    def __init__(self, changes: bool = False) -> None:
        super().__init__()
        self.changes = changes
        self.register_buffer("ready", torch.tensor(True))
        self.inner = torch.nn.Module()
        self.inner.register_buffer("sizes", torch.tensor([2, 3]))
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.changes:
            self.ready.logical_not_()
        if not self.ready:
            return x
        return x.reshape(-1, *self.inner.sizes.tolist()) * float(self.scale) + int(self.inner.sizes[0:1].numel())


def test_buffers_are_read() -> None:
    model, x = Model(), torch.randn(4, 6)
    captured = capture(model, (x,), dynamic_shapes=({0: "n"},))
    for size in (4, 7):
        x = torch.randn(size, 6)
        torch.testing.assert_close(captured.program.module()(x), model(x))


def test_a_buffer_that_changes_is_not_known() -> None:
    with pytest.raises(CaptureError, match=r"test_constant_buffers\.py:24 .* can't be converted"):
        capture(Model(changes=True), (torch.randn(4, 6),))


def test_other_tensors_are_not_known() -> None:
    class Branch(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if self.ready & (x.sum() > 0) else -x

    assert [operator for operator, _ in capture(Branch(), (torch.randn(4, 6),)).converted] == ["If"]
