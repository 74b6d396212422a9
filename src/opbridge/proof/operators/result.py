"""What the checks of operators found, as data."""

from __future__ import annotations

import dataclasses

from opbridge.records import Record

__all__ = ["CheckResult", "OperatorCheck"]


@dataclasses.dataclass(frozen=True)
class CheckResult(Record):
    """One check of one operator.

    Attributes:
        target: The operator, or the target of a mapping.
        sample: The sample's name; empty for a check of the operator as a whole.
        check: What was checked.
        status: ``"passed"``, ``"failed"``, ``"not applicable"`` or ``"not run"``.
        detail: How close it came, or why it failed, does not apply or was not run.
        log: The long story.
    """

    target: str
    sample: str
    check: str
    status: str
    detail: str = ""
    log: str = ""


@dataclasses.dataclass(frozen=True)
class OperatorCheck(Record):
    """What was found of the operators of a file.

    Attributes:
        file: The file, as it was named.
        results: In the order in which they were found.
    """

    file: str
    results: tuple[CheckResult, ...]

    json_keys = ("file", "passed", "counts", "results")

    @property
    def passed(self) -> bool:
        """Whether no check failed, and one was made at all."""
        return self.count("passed") > 0 and self.count("failed") == 0

    def count(self, status: str) -> int:
        """How many results have this status."""
        return sum(result.status == status for result in self.results)

    @property
    def counts(self) -> dict[str, int]:
        """The number of results by status."""
        return {name: self.count(name) for name in ("passed", "failed", "not applicable", "not run")}
