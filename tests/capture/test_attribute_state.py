"""State in plain tensor attributes is captured like state in buffers."""

from __future__ import annotations

import torch

from opbridge.capture.capture import capture
from opbridge.capture.stateful import capture_with_state
from opbridge.findings import buffer_mutation


class KeepsHidden(torch.nn.Module):
    """State in an attribute that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(3, 4)
        self.hidden = torch.zeros(2, 4)
        self.scale = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = self.cell(x, self.hidden)
        return self.hidden * self.scale


def test_an_attribute_that_forward_assigns_is_state() -> None:
    model = KeepsHidden()
    captured = capture_with_state(model, (torch.randn(2, 3),))
    assert captured.input_names == ("x", "state_hidden")
    assert captured.output_names == ("output", "next_state_hidden")
    assert list(model.named_buffers()) == []
    assert torch.equal(model.hidden, torch.zeros(2, 4))
    x, hidden = torch.randn(2, 3), torch.randn(2, 4)
    expected = model.cell(x, hidden)
    found, kept = captured.program.module()(x, state_hidden=hidden)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(kept[0] if isinstance(kept, (tuple, list)) else kept, expected)


def test_an_attribute_that_forward_assigns_is_a_finding_without_state() -> None:
    captured = capture(KeepsHidden(), (torch.randn(2, 3),))
    assert [finding.target for finding in buffer_mutation.detect(captured.program)] == ["hidden"]
