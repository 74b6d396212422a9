"""``torch.vmap``, which torch.export records as calls that begin and end a region."""

from __future__ import annotations

import pytest
import torch
from roundtrip import travel
from torch import nn

from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.nan import NanWatch


class Rows(nn.Module):
    """A layer that maps one row, with operators that have a mapping of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(6, 4), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: self.layer(row).softmax(-1) * row.max())(x)


class Ensemble(nn.Module):
    """Several layers of the same form, as in the tutorial of ``torch.func``."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(6, 4) for _ in range(3)]
        self.form = [layers[0]]
        self.weights = nn.ParameterDict(torch.func.stack_module_state(layers)[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        call = torch.func.functional_call
        return torch.vmap(lambda weights: call(self.form[0], weights, (x,)))(dict(self.weights)).mean(0)


def is_inside() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


@pytest.mark.parametrize("module", [Rows(), Ensemble()], ids=lambda module: type(module).__name__)
def test_a_dynamic_batch(module: nn.Module) -> None:
    module.eval()
    trip = travel(module, (torch.randn(3, 6),), dynamic_shapes=({0: "n"},))
    for count in (3, 1, 5):
        trip.check(torch.randn(count, 6))
    graph = CapturedGraph(trip.captured.program)
    x = torch.randn(4, 6)
    watch = NanWatch(graph.module, [x])
    torch.testing.assert_close(graph.run([x], watch=watch).own[0], module(x))
    assert not watch.found
    assert not is_inside()


def test_a_run_that_fails_in_a_region_ends_it() -> None:
    program = travel(Rows().eval(), (torch.randn(3, 6),)).captured.program
    graph = CapturedGraph(program, check_guards=False)
    with pytest.raises(RuntimeError):
        graph.run([torch.randn(3, 5)])
    assert not is_inside()
