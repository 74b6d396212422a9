"""Operators of torch.library in Python without a mapping."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.errors import UnsupportedOperatorError


@torch.library.custom_op("inlining::soft_clamp", mutates_args=())
def soft_clamp(x: Tensor, limit: float = 1.0) -> Tensor:
    return limit * torch.tanh(x / limit)


@torch.library.custom_op("inlining::both", mutates_args=(), device_types="cpu")
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return soft_clamp(x, 2.0), x.cumsum(0)


@torch.library.custom_op("inlining::with_numpy", mutates_args=())
def with_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


@torch.library.custom_op("inlining::on_gpu", mutates_args=(), device_types="cuda")
def on_gpu(x: Tensor) -> Tensor:
    return 2 * x


soft_clamp.register_fake(lambda x, limit=1.0: torch.empty_like(x))
both.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))
with_numpy.register_fake(torch.empty_like)
on_gpu.register_fake(torch.empty_like)

torch.library.define("inlining::scaled_mm", "(Tensor x, Tensor weight, Tensor scale) -> Tensor")
torch.library.register_fake("inlining::scaled_mm", lambda x, weight, scale: x @ weight.mT.to(x.dtype))


@torch.library.impl("inlining::scaled_mm", "default")
def scaled_mm(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return x @ (scale * weight).mT


class Calls(nn.Module):
    def __init__(self, function: str) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.inlining, function)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.operator(x)
        return found if isinstance(found, tuple) else (found,)


def test_the_function_is_traced_also_where_it_calls_another(tmp_path: Path) -> None:
    shapes = {"x": {0: torch.export.Dim("n")}}
    bundle = opbridge.export(Calls("both"), (torch.randn(3, 4),), path=tmp_path / "bundle", dynamic_shapes=shapes)
    assert bundle.verified
    rungs = {item["target"]: item["rung"] for item in bundle.manifest["operators"]}
    assert rungs["inlining::both"] == rungs["inlining::soft_clamp"] == "decompose"


def test_a_function_of_impl_is_traced(tmp_path: Path) -> None:
    class Layer(nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return torch.ops.inlining.scaled_mm(x, weight, torch.full((3, 1), 0.5))  # type: ignore[no-any-return]

    example = torch.randn(3, 4), torch.randint(-9, 9, (3, 4), dtype=torch.int8)
    bundle = opbridge.export(Layer(), example, path=tmp_path / "bundle")
    assert bundle.verified
    assert {item["target"]: item["rung"] for item in bundle.manifest["operators"]}["inlining::scaled_mm"] == "decompose"


@pytest.mark.parametrize("function", ["with_numpy", "on_gpu"])
def test_what_is_not_written_in_torch_operators_is_unsupported(function: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError, match=f"inlining::{function}: no mapping to ONNX"):
        opbridge.export(Calls(function), (torch.randn(3, 4),), path=tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_mapping_takes_precedence(tmp_path: Path) -> None:
    @opbridge.decomposition("inlining::on_gpu")
    def on_gpu(x: Tensor) -> Tensor:
        """on_gpu(Tensor x) -> Tensor"""
        return x + x

    opbridge.export(Calls("on_gpu"), (torch.randn(3),), path=tmp_path / "bundle", ops=[on_gpu], verify=False)
