"""The table itself: what a case is, and how the files of this folder add theirs."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from legacy_sources import SOURCES

FOLDER = Path(__file__).parent
OPSET = 18


@dataclasses.dataclass(frozen=True)
class Case:
    """One use of the old ways.

    Attributes:
        name: Unique in the table.
        forward: What the model computes, a function of its tensors.
        inputs: Example inputs.
        group: The file that it stands in.
        dynamic: Whether axis 0 of each input may be dynamic.
        opset: The opset it is exported at.
        setup: Makes the registrations that it needs.
        undo: Those registrations, as (name, opset).
        oracle: Whether the TorchScript exporter emits what the symbolic builds.
        graph: What it emits, output for output, where there is no oracle.
        oracle_setup: The registrations for the oracle, where ``setup`` needs the bridge.
        runs: Whether ONNX Runtime has every node of it.
        reference: What the symbolic computes, where that is not what ``forward`` computes.
        domains: Custom domains in what it emits.
        alone: Whether it must not share a model with others, because its registrations would meet theirs.
        migrates: Whether ``opbridge migrate`` converts it.
        kept: Whether it adds nodes that ONNX does not have, which both exporters write as they are.
        source: The public file whose pattern the case follows.
    """

    name: str
    forward: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    group: str
    dynamic: bool = True
    opset: int = OPSET
    setup: Callable[[], None] | None = None
    undo: Sequence[tuple[str, int]] = ()
    oracle: bool = True
    graph: tuple[str, ...] = ()
    oracle_setup: Callable[[], None] | None = None
    runs: bool = False
    reference: Callable[..., Any] | None = None
    domains: tuple[str, ...] = ()
    alone: bool = False
    migrates: bool = True
    kept: bool = False
    source: str = ""

    def model(self) -> torch.nn.Module:
        """A fresh model."""
        return MODELS[len(self.inputs)](self.forward).eval()

    @property
    def dynamic_shapes(self) -> dict[str, dict[int, str]] | None:
        """As ``torch.export`` takes them."""
        return {name: {0: "batch"} for name in NAMES[: len(self.inputs)]} if self.dynamic else None

    @property
    def dynamic_axes(self) -> dict[str, dict[int, str]] | None:
        """The same as the old exporter takes it; needs ``input_names``."""
        return self.dynamic_shapes

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return list(NAMES[: len(self.inputs)])

    def expected(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the ONNX model computes."""
        with torch.no_grad():
            outputs = (self.reference or self.forward)(*inputs)
        return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


NAMES = ("x", "y", "z")


class One(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Two(One):
    def forward(self, x, y):
        return self.function(x, y)


class Three(One):
    def forward(self, x, y, z):
        return self.function(x, y, z)


MODELS = {1: One, 2: Two, 3: Three}

CASES: dict[str, Case] = {}


def case(name: str, forward: Callable[..., Any], *inputs: torch.Tensor, **fields: Any) -> None:
    """Add a case. The file that calls this is its group."""
    group = forward.__module__.rpartition(".")[2]
    assert name not in CASES or CASES[name].group != group, f"two cases are called {name}"
    fields["undo"] = tuple(fields.get("undo", ()))
    fields.setdefault("source", SOURCES.get(name, ""))
    # torch.export makes one input of a tensor that is passed twice.
    CASES[name] = Case(name, forward, tuple(value.clone() for value in inputs), group, **fields)


def tensor(*shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    """An input without special values: an increasing ramp, shuffled by a fixed stride."""
    count = max(1, torch.Size(shape).numel())
    ramp = low + (high - low) * (torch.arange(count) * 37 % count).to(torch.float32) / count
    return (ramp + 0.013)[: torch.Size(shape).numel()].reshape(shape)


def all_cases() -> dict[str, Case]:
    """Every case of every file, by name."""
    for module in pkgutil.iter_modules([str(FOLDER)]):
        if module.name != "table":
            importlib.import_module(f"legacy_cases.{module.name}")
    return dict(CASES)
