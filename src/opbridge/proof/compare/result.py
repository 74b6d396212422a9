"""The result of a comparison of two models: data only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from opbridge.proof.verify.verification import Verification

__all__ = ["ModelComparison"]


@dataclasses.dataclass(frozen=True)
class ModelComparison:
    """Whether two models compute the same.

    Attributes:
        first: A description of the first model and of where it ran.
        second: A description of the second model.
        reference: The model whose float64 run is the reference of the tolerance.
        verification: The comparison of the other model with the reference.
        notes: How inputs and outputs were matched if not by name.
    """

    first: str
    second: str
    reference: str
    verification: Verification
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every output of every case matches within the tolerance."""
        return self.verification.passed

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON data."""
        return {
            "equal": self.equal,
            "first": self.first,
            "second": self.second,
            "reference": self.reference,
            "notes": list(self.notes),
            "verification": self.verification.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelComparison:
        """The comparison that :meth:`to_dict` wrote."""
        verification = Verification.from_dict(data["verification"])
        return cls(data["first"], data["second"], data["reference"], verification, tuple(data["notes"]))
