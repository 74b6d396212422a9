"""The results of NaN, infinities, signed zeros, subnormal and extreme numbers as inputs, as data."""

from __future__ import annotations

import dataclasses
from typing import Literal

from opbridge.records import StoredRecord

__all__ = ["SpecialDifference", "SpecialValues", "SpecialVerdict"]

SpecialVerdict = Literal["as PyTorch", "differs", "error", "refused", "outside the contract"]
"""The verdict on one kind of special values."""


@dataclasses.dataclass(frozen=True)
class SpecialDifference(StoredRecord):
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

    def __str__(self) -> str:
        return (
            f"{self.output}: {self.engine} where PyTorch has {self.torch}, in {self.count} of {self.elements} "
            f"elements, first at {list(self.index)}"
        )


@dataclasses.dataclass(frozen=True)
class SpecialValues(StoredRecord):
    """The result of one kind of special values in the inputs.

    Attributes:
        values: The kind: "NaN", "infinity", "-0", "subnormal", "large", "extremes".
        verdict: "as PyTorch", "differs", "error" if the engine did not run, "refused" if PyTorch does not
            accept such values, "outside the contract" if they lead to NaN and the model was exported without it.
        differences: The elements that differ.
        error: Why there is no result.
        engine: The engine, if several were verified.
    """

    values: str
    verdict: SpecialVerdict
    differences: tuple[SpecialDifference, ...] = ()
    error: str | None = None
    engine: str = ""

    @property
    def passed(self) -> bool:
        """Whether the engine agrees with PyTorch, or PyTorch does not accept these values."""
        return self.verdict in ("as PyTorch", "refused")

    def __str__(self) -> str:
        lines = [f"{self.values}: {self.verdict}{f' ({self.error})' if self.error else ''}"]
        return "\n".join(lines + [f"  {difference}" for difference in self.differences])
