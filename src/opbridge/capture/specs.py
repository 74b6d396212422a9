"""The inputs and outputs of a captured model, in the form in which an engine declares them."""

from __future__ import annotations

from typing import Any

import torch

from opbridge.capture.capture import Captured
from opbridge.engines.base import TensorSpec
from opbridge.torch_graph.signature import user_inputs

__all__ = ["specs_of_program"]


def specs_of_program(captured: Captured) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs and outputs of a captured program, with the user's names for them and their dimensions."""
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
