"""What came of taking a model to another opset, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

from opbridge.onnx_model.adaptation import Adaptation

__all__ = ["CannotExpress", "ConvertedOpset", "Unexpressed"]


class CannotExpress(Exception):
    """Raised by a step: the node has no equivalent in the other opset, and why. It never leaves this package."""


@dataclasses.dataclass(frozen=True)
class Unexpressed:
    """A node that the other opset can't express.

    Attributes:
        node: Its name in the model that was given.
        operator: ``"ai.onnx::Op"``.
        reason: Why, in one line.
    """

    node: str
    operator: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The refusal as JSON data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class ConvertedOpset:
    """A model taken to another opset.

    Attributes:
        model: The new model; only if ``unexpressed`` is empty is it one to use.
        from_opset: What the model was of.
        opset: What it is of now.
        changes: What was changed, and at which nodes.
        unexpressed: What the other opset can't express.
    """

    model: ir.Model
    from_opset: int
    opset: int
    changes: tuple[Adaptation, ...]
    unexpressed: tuple[Unexpressed, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result without the model, as JSON data."""
        return {
            "from_opset": self.from_opset,
            "opset": self.opset,
            "ir_version": self.model.ir_version,
            "changes": [change.to_dict() for change in self.changes],
            "unexpressed": [item.to_dict() for item in self.unexpressed],
        }
