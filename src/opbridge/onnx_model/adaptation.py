"""What a pass changed in a model, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir

__all__ = ["Adaptation", "AdaptationResult"]


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """One change made for an engine.

    Attributes:
        what: The change in one line.
        nodes: The names of the nodes it was made to.
    """

    what: str
    nodes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The adaptation as JSON data."""
        return {"what": self.what, "nodes": list(self.nodes)}


@dataclasses.dataclass
class AdaptationResult(ir.passes.PassResult):
    """A pass's result that says what was changed."""

    adaptations: tuple[Adaptation, ...] = ()
