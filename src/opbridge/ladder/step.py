"""The rung that one operator takes, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Step"]


@dataclasses.dataclass(frozen=True)
class Step:
    """The rung one operator takes.

    Attributes:
        target: The torch operator, "aten::cummax"; of an ONNX model the node's, "ai.onnx::Conv".
        rung: "native", "opset", "rewrite", "decompose", "translate", "function" or "kernel"; "missing" if no rung
            serves it.
        count: How often it occurs in the model.
        sources: ``file:line`` in the user's model, the first few places; of an ONNX model names of nodes.
        provider: Whose mapping it is: "torch", "catalog" or "user"; "onnx" for what the standard or the model defines.
        detail: A one-line explanation.
        overrides: Why torch's own mapping is replaced; empty if it is not.
    """

    target: str
    rung: str
    count: int
    sources: tuple[str, ...]
    provider: str
    detail: str = ""
    overrides: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON data, without the source lines (they depend on the machine)."""
        return {
            "target": self.target,
            "rung": self.rung,
            "count": self.count,
            "provider": self.provider,
            "detail": self.detail,
        }
