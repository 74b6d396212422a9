"""The rung used for one operator, as data."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from opbridge.records import Record

__all__ = ["Rung", "Step"]

Rung = Literal["native", "opset", "rewrite", "decompose", "translate", "function", "kernel", "missing"]
"""The rungs of the ladder, the cheapest first; "missing" if no rung supports an operator."""


@dataclasses.dataclass(frozen=True)
class Step(Record):
    """The rung used for one operator.

    Attributes:
        target: The torch operator, "aten::cummax"; for an ONNX model, the node's operator, "ai.onnx::Conv".
        rung: The rung.
        count: The number of uses in the model.
        sources: ``file:line`` of the first few uses in the user's model; for an ONNX model, the names of nodes.
        provider: The source of the mapping: "torch", "catalog", "user", or "onnx" for the standard or the model itself.
        detail: A one-line explanation.
        overrides: Why torch's own mapping is replaced; empty if it is not.
    """

    # The source lines depend on the machine and are written to a separate file.
    json_keys: ClassVar[tuple[str, ...]] = ("target", "rung", "count", "provider", "detail")

    target: str
    rung: Rung
    count: int
    sources: tuple[str, ...]
    provider: str
    detail: str = ""
    overrides: str = ""
