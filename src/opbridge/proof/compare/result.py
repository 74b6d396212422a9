"""The result of a comparison of two models: data only."""

from __future__ import annotations

import dataclasses

from opbridge.proof.verify.verification import Verification
from opbridge.records import StoredRecord

__all__ = ["ModelComparison"]


@dataclasses.dataclass(frozen=True)
class ModelComparison(StoredRecord):
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

    json_keys = ("equal", "first", "second", "reference", "notes", "verification")

    @property
    def equal(self) -> bool:
        """Whether every output of every case matches within the tolerance."""
        return self.verification.passed
