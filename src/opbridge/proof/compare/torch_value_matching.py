"""Matches the intermediate values of an engine's model with those of a captured program."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from opbridge.capture.capture import Captured
from opbridge.errors import OpbridgeError
from opbridge.proof.bisect.intermediate_checks import ObservableModel
from opbridge.proof.bisect.intermediates_engine import EngineModel, loader
from opbridge.proof.compare.divergences import first_unmatched
from opbridge.proof.compare.pairing import Pairing
from opbridge.proof.compare.sides import ModelSide
from opbridge.proof.compare.value_matching import equal_values, fx_nodes, opened, renamed
from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.inputs import InputSpecs, to_numpy
from opbridge.proof.verify.reference_captured import output_positions
from opbridge.proof.verify.verification import Verification
from opbridge.torch_graph.origins import Origin

__all__ = ["MatchedModel", "match_values"]


@dataclasses.dataclass
class MatchedModel:
    """An engine's model whose values are matched with a captured program.

    Attributes:
        observable: The model whose intermediate values verification reads.
        by_numbers: Whether values were matched only by their numbers, so that unmatched values are wrong.
        outputs: The names of the model's outputs.
    """

    observable: ObservableModel
    by_numbers: bool
    outputs: tuple[str, ...]

    def origins_of_outputs(self, captured: Captured) -> dict[str, Origin]:
        """The origin of each output in the captured program."""
        positions = output_positions(captured.program, len(captured.output_names))
        nodes = zip(captured.output_names, CapturedGraph(captured.program, positions).output_nodes, strict=True)
        return {name: Origin(node.name) for name, node in nodes if isinstance(node, torch.fx.Node)}

    def named(self, verified: Verification, sources: Mapping[str, str]) -> Verification:
        """The verification, with the first node of each divergence."""
        if not self.by_numbers or not verified.divergences:
            return verified
        pairs = dict.fromkeys((*self.observable.origins, *self.outputs), "")
        with EngineModel(self.observable.model, self.observable.load) as model:
            known = {name: text for name, text in pairs.items() if name in model.values}
            found = tuple(first_unmatched(item, model, known, sources) for item in verified.divergences)
        return dataclasses.replace(verified, divergences=found)


def match_values(captured: Captured, model: Any, pairing: Pairing, *, by_numbers: bool = True) -> MatchedModel | None:
    """Match the values of a model with those of a captured program; None if that is not possible.

    Args:
        captured: The captured program.
        model: The side of the comparison.
        pairing: The matching inputs and outputs of the model and the program.
        by_numbers: Whether to run both and match values by their numbers if names don't help.
    """
    if not isinstance(model, ModelSide) or not model.has_graph or pairing.dtypes:
        return None
    graph = renamed(model.graph(), pairing)
    origins = {name: Origin(*place) for name, place in model.values.items()} or _recorded(captured, graph)
    if not origins and not by_numbers:
        return None
    by_numbers = not origins
    if by_numbers:
        with contextlib.suppress(OpbridgeError):
            origins = _by_numbers(captured, model, graph)
    outputs = tuple(str(value.name) for value in graph.graph.outputs)
    return MatchedModel(ObservableModel(graph, loader(model.engine, model.libraries), origins), by_numbers, outputs)


def _recorded(captured: Captured, graph: ir.Model) -> dict[str, Origin]:
    """The values with a recorded FX node, if that node calls the same operator."""
    targets = {node.name: str(node.target) for node in captured.program.graph.nodes if node.op == "call_function"}
    return {
        value: Origin(name)
        for value, (name, target) in fx_nodes(graph).items()
        if targets.get(name) == target and value == name
    }


def _by_numbers(captured: Captured, model: ModelSide, graph: ir.Model) -> dict[str, Origin]:
    """The values that equal an FX node's value on the example inputs."""
    specs = InputSpecs(captured)
    feeds: Mapping[str, np.ndarray] = specs.feeds(specs.flat)
    own: dict[str, np.ndarray] = {}

    def watch(name: str, value: Any, float64: Any, random: bool) -> None:
        if isinstance(value, torch.Tensor) and not random:
            own[name] = to_numpy(value)

    CapturedGraph(captured.program).run(specs.flat, float64=False, watch=watch)
    with opened(model, graph) as engine_model:
        return {name: Origin(node) for name, node in equal_values(own, engine_model, feeds).items()}
