"""The changes that a pass made to a model, as data."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from opbridge.records import Record

__all__ = ["Adaptation", "AdaptationResult"]


@dataclasses.dataclass(frozen=True)
class Adaptation(Record):
    """One change to a model.

    Attributes:
        what: A description of the change, one line, for display only.
        nodes: The names of the changed nodes.
        operator: ``"domain::Op"`` of the operator that the engine accepts after the change; empty for a change of the
            whole model.
        opset: The new opset, if the change is a conversion of the model to another opset.
    """

    what: str
    nodes: tuple[str, ...]
    operator: str = ""
    opset: int | None = None

    json_keys = ("what", "nodes")


@dataclasses.dataclass
class AdaptationResult(ir.passes.PassResult):
    """A pass's result with a list of its changes."""

    adaptations: tuple[Adaptation, ...] = ()
