"""What stands between a model and the engines, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from opbridge.findings.base import Finding
from opbridge.ladder.step import Step

__all__ = ["Diagnosis", "OperatorLinks"]


@dataclasses.dataclass(frozen=True)
class OperatorLinks:
    """One operator of the model and its three links.

    Attributes:
        step: The rung it takes.
        torch: Link 1: it is captured.
        mapping: Link 2: something maps it to ONNX.
        kernel: Link 3: every engine has kernels for what it becomes; None where that could not be asked.
    """

    step: Step
    torch: bool
    mapping: bool
    kernel: bool | None

    def to_dict(self) -> dict[str, Any]:
        """The operator as JSON data."""
        links = {"torch": self.torch, "mapping": self.mapping, "kernel": self.kernel}
        return {**self.step.to_dict(), "sources": list(self.step.sources), "links": links}


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What stands between a model and the engines.

    Attributes:
        operators: Every distinct operator of the model; none if it can't be captured.
        findings: The broken links, their fixes, and other properties of the model that matter.
        engines: The version of each engine that was asked.
        opset: The lowest opset that serves the model; None if it can't be captured.
        opset_reason: Which operator forced it.
        seconds: How long it took.
        details: The long story of a failed capture, for a log; empty otherwise.
    """

    operators: tuple[OperatorLinks, ...]
    findings: tuple[Finding, ...]
    engines: Mapping[str, str]
    opset: int | None
    opset_reason: str
    seconds: float
    details: str = ""

    @property
    def ok(self) -> bool:
        """Whether every broken link is fixed by another rung."""
        return not any(finding.severity == "error" and not finding.mended for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as JSON data."""
        return {
            "ok": self.ok,
            "opset": self.opset,
            "opset_reason": self.opset_reason,
            "engines": dict(self.engines),
            "operators": [operator.to_dict() for operator in self.operators],
            "findings": [finding.to_dict() for finding in self.findings],
            "seconds": round(self.seconds, 3),
        }
