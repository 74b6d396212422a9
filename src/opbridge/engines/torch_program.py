"""A torch program as an engine takes it that loads no ONNX."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from opbridge.capture.capture import user_inputs
from opbridge.engines.base import TensorSpec

if TYPE_CHECKING:
    from opbridge.capture.capture import Captured
    from opbridge.kernels.library import KernelOperator

__all__ = ["TorchProgram", "specs_of_program"]


@dataclasses.dataclass(frozen=True)
class TorchProgram:
    """What an engine converts.

    Attributes:
        program: Decomposed as far as the engine's refusals made it needful; what else it holds, the engine takes.
        inputs: In order; the names are those of the bundle.
        outputs: Likewise.
        arguments: An example of each input, in order.
        kernels: The kernels of the custom operators that the program calls.
        libraries: The library that has them, built for the engine.
    """

    program: torch.export.ExportedProgram
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: tuple[Any, ...]
    kernels: tuple[KernelOperator, ...] = ()
    libraries: tuple[Path, ...] = ()


def specs_of_program(captured: Captured) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs and the outputs of a captured program, by the names that the user gave them or its dimensions."""
    graph = captured.program.graph
    placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
    inputs = [placeholders[name].meta["val"] for name in user_inputs(captured.program)]
    returned = captured.program.graph_signature.user_outputs
    by_name = {node.name: node.meta.get("val") for node in graph.nodes}
    outputs = [by_name[name] for name in returned if isinstance(name, str)]
    return (
        tuple(_spec(name, value, captured) for name, value in zip(captured.input_names, inputs, strict=True)),
        tuple(_spec(name, value, captured) for name, value in zip(captured.output_names, outputs, strict=True)),
    )


def _spec(name: str, value: Any, captured: Captured) -> TensorSpec:
    if not isinstance(value, torch.Tensor):
        return TensorSpec(name, "int64", ())
    sizes = [
        size if isinstance(size, int) else captured.dimension_names.get(str(size), f"{name}.{axis}")
        for axis, size in enumerate(value.shape)
    ]
    return TensorSpec(name, str(value.dtype).removeprefix("torch."), tuple(sizes))
