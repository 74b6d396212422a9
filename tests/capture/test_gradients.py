"""Models that compute gradients in ``forward``, which torch.export does not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import opbridge
from opbridge.capture.capture import capture
from opbridge.errors import CaptureError
from opbridge.torch_graph.eager import run_eager
from opbridge.torch_graph.gradients import needs_gradients


class Potential(torch.nn.Module):
    """An energy and the forces, which are its negative gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1))

    def forward(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        positions.requires_grad_(True)
        apart = (positions[:, None] - positions[None]).pow(2).sum(-1)
        energy = self.layers(positions).tanh().sum() + torch.exp(-apart).sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return {"energy": energy, "forces": -gradient}


class Jacobian(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(torch.func.jacrev(lambda row: row.sin() * row.sum()))(x)


class Score(torch.nn.Module):
    """The gradient of a part, with parameters shared by the rest of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.func.grad(lambda y: self.linear(y).pow(3).mean())(x))


class Tangent(torch.nn.Module):
    """A derivative in forward mode, of a function without parameters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(lambda y: y.sin() * y.sum(), (x,), (x.cos(),))[1]


class Whole(torch.nn.Module):
    """A derivative that torch.export records without an error, but of the example."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vjp(lambda y: y.sin() * y.sum(), x)[1](x)[0]


class Scaled(Potential):
    """A branch beside the gradient."""

    def forward(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        positions = positions / positions.norm() if positions.sum() > 0 else positions * 1
        return super().forward(positions)


class Activations(torch.nn.Module):
    """Gradients that torch.export does not decompose."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_(True)
        with torch.enable_grad():
            energy = torch.nn.functional.silu(x).sum() + torch.nn.functional.mish(x).sum()
            return torch.autograd.grad(energy, x)[0]


MODELS = (Activations, Potential, Jacobian, Score, Tangent, Whole, Scaled)


@pytest.mark.quick("Score", every=0)
@pytest.mark.parametrize("model", MODELS)
def test_the_program_computes_the_gradients_at_other_sizes(model: Any) -> None:
    module, x = model(), torch.randn(4, 3)
    captured = capture(module, (x,), dynamic_shapes=({0: "n"},))
    names = {node.name for node in captured.program.graph.nodes}
    assert not names & {"detach_", "requires_grad_"}
    assert set(captured.program.state_dict) == set(module.state_dict())
    for size in (4, 7):
        x = torch.randn(size, 3)
        found = torch.utils._pytree.tree_leaves(captured.program.module()(x))
        for own, expected in zip(found, run_eager(module, (x,), {}), strict=True):
            torch.testing.assert_close(own, expected)


@pytest.mark.slow
def test_the_users_module_and_inputs_are_as_before() -> None:
    module, x = Potential(), torch.randn(4, 3)
    capture(module, (x,))
    run_eager(module, (x,), {})
    assert not x.requires_grad
    assert "forward" not in vars(module)
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert set(module(x)) == {"energy", "forces"}


@pytest.mark.slow
def test_a_size_that_the_model_fixes_is_refused() -> None:
    class Fixed(Potential):
        def forward(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
            found = super().forward(positions)
            return {**found, "rows": torch.stack([row * index for index, row in enumerate(found["forces"].tolist())])}

    with pytest.raises(CaptureError):
        capture(Fixed(), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))


def test_a_product_that_tells_the_size_1_apart() -> None:
    class Products(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                energy = torch.einsum("ij,kj->ik", x, x).square().sum()
                return torch.autograd.grad(energy, x)[0]

    captured = capture(Products(), (torch.randn(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    x = torch.randn(6, 3)
    torch.testing.assert_close([captured.program.module()(x)], run_eager(Products(), (x,), {}))


@pytest.mark.quick(every=9)
@pytest.mark.parametrize("model", MODELS)
def test_in_the_engine(model: Any, tmp_path: Path) -> None:
    bundle = opbridge.export(model(), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},), path=tmp_path / "b")
    assert bundle.verified


def test_errors_that_caused_each_other() -> None:
    one, other = ValueError("one"), ValueError("element 0 of tensors does not require grad")
    one.__context__, other.__context__ = other, one
    assert needs_gradients(one)
    other.args = ("other",)
    assert not needs_gradients(one)
