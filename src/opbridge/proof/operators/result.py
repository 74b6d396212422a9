"""The results of operator checks, as data."""

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
        check: The name of the check.
        status: ``"passed"``, ``"failed"``, ``"not applicable"`` or ``"not run"``.
        detail: The error relative to the tolerance, or why the check failed, does not apply or was not run.
        log: Long output for the log file.
    """

    target: str
    sample: str
    check: str
    status: str
    detail: str = ""
    log: str = ""


@dataclasses.dataclass(frozen=True)
class OperatorCheck(Record):
    """The results for the operators of a file.

    Attributes:
        file: The path of the file.
        results: The results, in the order of the checks.
    """

    file: str
    results: tuple[CheckResult, ...]

    json_keys = ("file", "passed", "counts", "results")

    @property
    def passed(self) -> bool:
        """Whether at least one check passed and none failed."""
        return self.count("passed") > 0 and self.count("failed") == 0

    def count(self, status: str) -> int:
        """The number of results with this status."""
        return sum(result.status == status for result in self.results)

    @property
    def counts(self) -> dict[str, int]:
        """The number of results by status."""
        return {name: self.count(name) for name in ("passed", "failed", "not applicable", "not run")}
