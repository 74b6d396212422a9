"""The reason for the opset of a model, as data."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["OpsetCause", "OpsetReason"]


class OpsetCause(enum.Enum):
    """What determined the opset of a model."""

    REQUESTED = "requested"
    LOWEST = "lowest"
    OPERATOR = "operator"
    ENGINE = "engine"
    MODEL = "model"
    MODEL_REFUSED = "model refused"
    OLD_NODES = "old nodes"


@dataclasses.dataclass(frozen=True)
class OpsetReason:
    """The reason for the opset of a model.

    Attributes:
        cause: What determined the opset.
        name: The operator that needs the opset, or the engine whose newest opset it is; empty for other causes.
        opset: The opset that the operator needs, or the original opset of an ONNX model that was converted.
        in_body: Whether the operator occurs inside a function body only.
    """

    cause: OpsetCause
    name: str = ""
    opset: int | None = None
    in_body: bool = False

    def __str__(self) -> str:
        """The reason in words, as the reports show it."""
        match self.cause:
            case OpsetCause.REQUESTED:
                return "requested"
            case OpsetCause.LOWEST:
                return "the lowest that PyTorch's mappings are written for"
            case OpsetCause.OPERATOR:
                return f"{self.name} needs opset {self.opset}{', inside a function body' if self.in_body else ''}"
            case OpsetCause.ENGINE:
                return f"the newest that {self.name} takes"
            case OpsetCause.MODEL:
                return "the model's own"
            case OpsetCause.MODEL_REFUSED:
                return f"the model's own, {self.opset}, is refused"
            case OpsetCause.OLD_NODES:
                return f"its old nodes become operators of this opset; the model's own is {self.opset}"
