"""What the checks of operators found, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["CheckResult", "OperatorCheck"]


@dataclasses.dataclass(frozen=True)
class CheckResult:
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

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class OperatorCheck:
    """What was found of the operators of a file.

    Attributes:
        file: The file, as it was named.
        results: In the order in which they were found.
    """

    file: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed, and one was made at all."""
        return self.count("passed") > 0 and self.count("failed") == 0

    def count(self, status: str) -> int:
        """How many results have this status."""
        return sum(result.status == status for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON data."""
        return {
            "file": self.file,
            "passed": self.passed,
            "counts": {name: self.count(name) for name in ("passed", "failed", "not applicable", "not run")},
            "results": [result.to_dict() for result in self.results],
        }
