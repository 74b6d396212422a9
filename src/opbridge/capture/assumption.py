"""An assumption under which a model was captured, as data. This module does not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Literal

from opbridge.records import StoredRecord

__all__ = ["Assume", "Assumption", "verdict_text"]

Assume = bool | Literal["check"]
"""Whether to make assumptions; "check" adds an output to the model that says whether its inputs fulfil them."""


@dataclasses.dataclass(frozen=True)
class Assumption(StoredRecord):
    """A fact about the example inputs without which the model is not valid.

    Attributes:
        kind: "size" if a dimension that is declared dynamic is constant, "value" if Python reads a tensor's value.
        what: The dimension, the condition, or the line that reads the value.
        value: The size, or the value; empty if the line reads several values.
        source: The line: ``"model.py:12"``; empty if it is not known.
    """

    kind: Literal["size", "value"]
    what: str
    value: str
    source: str

    def __str__(self) -> str:
        """``"batch is 2 (model.py:12)"``."""
        place = f" ({self.source})" if self.source else ""
        return f"{self.what} is {self.value}{place}" if self.value else f"{self.what}, with its values{place}"


def verdict_text(verdict: str, assumptions: Collection[object]) -> str:
    """The verdict for a reader: ``"passed under 2 assumptions"``."""
    if verdict != "passed" or not assumptions:
        return verdict
    return f"passed under {len(assumptions)} assumption{'' if len(assumptions) == 1 else 's'}"
