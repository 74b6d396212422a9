"""How an engine treats NaN, infinities, signed zeros, subnormal and extreme numbers: data only, like ``trace.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from opbridge.records import to_json

__all__ = ["SpecialDifference", "SpecialValues"]


@dataclasses.dataclass(frozen=True)
class SpecialDifference:
    """Elements of one output that are of another kind in the engine than in PyTorch.

    Attributes:
        output: The output's ONNX name.
        torch: The kind of PyTorch's numbers: "NaN", "infinity", "-infinity", "0", "-0", "a subnormal number" or
            "a number".
        engine: The kind of the engine's numbers; "another number" for one that is far from PyTorch's.
        count: The number of elements that differ in this way.
        elements: The number of elements of the output.
        index: The index of the first element that differs.
    """

    output: str
    torch: str
    engine: str
    count: int
    elements: int
    index: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON data."""
        data: dict[str, Any] = to_json(dataclasses.asdict(self))
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SpecialDifference:
        """The difference that :meth:`to_dict` wrote."""
        return cls(**{**data, "index": tuple(data["index"])})

    def __str__(self) -> str:
        return (
            f"{self.output}: {self.engine} where PyTorch has {self.torch}, in {self.count} of {self.elements} "
            f"elements, first at {list(self.index)}"
        )


@dataclasses.dataclass(frozen=True)
class SpecialValues:
    """The result of one kind of special values in the inputs.

    Attributes:
        values: The kind: "NaN", "infinity", "-0", "subnormal", "large", "extremes".
        verdict: "as PyTorch", "differs", "error" if the engine did not run, "refused" if PyTorch does not
            accept such values.
        differences: The elements that differ.
        error: Why there is no result.
        engine: The engine, if several were verified.
    """

    values: str
    verdict: str
    differences: tuple[SpecialDifference, ...] = ()
    error: str | None = None
    engine: str = ""

    @property
    def passed(self) -> bool:
        """Whether the engine does as PyTorch does, as far as PyTorch does anything."""
        return self.verdict in ("as PyTorch", "refused")

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data."""
        return {
            "values": self.values,
            "verdict": self.verdict,
            "differences": [difference.to_dict() for difference in self.differences],
            "error": self.error,
            "engine": self.engine,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SpecialValues:
        """The result that :meth:`to_dict` wrote."""
        differences = tuple(SpecialDifference.from_dict(item) for item in data["differences"])
        return cls(**{**data, "differences": differences})

    def __str__(self) -> str:
        lines = [f"{self.values}: {self.verdict}{f' ({self.error})' if self.error else ''}"]
        return "\n".join(lines + [f"  {difference}" for difference in self.differences])
