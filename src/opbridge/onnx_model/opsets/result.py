"""The result of converting a model to another opset, as data."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from opbridge.onnx_model.adaptation import Adaptation
from opbridge.records import Record

__all__ = ["CannotExpress", "ConvertedOpset", "Unexpressed"]


class CannotExpress(Exception):
    """Raised by a step for a node that has no equivalent in the other opset, with the reason. Internal."""


@dataclasses.dataclass(frozen=True)
class Unexpressed(Record):
    """A node that the other opset cannot express.

    Attributes:
        node: The name of the node in the original model.
        operator: ``"ai.onnx::Op"``.
        reason: A one-line reason.
    """

    node: str
    operator: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ConvertedOpset(Record):
    """A model converted to another opset.

    Attributes:
        model: The new model; usable only if ``unexpressed`` is empty.
        from_opset: The opset of the original model.
        opset: The opset of the new model.
        changes: The changes and the nodes they were made to.
        unexpressed: The nodes that the other opset cannot express.
    """

    model: ir.Model
    from_opset: int
    opset: int
    changes: tuple[Adaptation, ...]
    unexpressed: tuple[Unexpressed, ...]

    json_keys = ("from_opset", "opset", "ir_version", "changes", "unexpressed")

    @property
    def ir_version(self) -> int:
        """The IR version of the new model."""
        return int(self.model.ir_version)
