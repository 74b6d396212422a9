"""The broken links between a model and the engines, as data."""

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
        step: The rung of the operator.
        torch: Link 1: whether the operator is captured.
        mapping: Link 2: whether the operator has a mapping to ONNX.
        kernel: Link 3: whether every engine has kernels for the operator's nodes; None if this could not be determined.
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
    """The broken links between a model and the engines.

    Attributes:
        operators: The links of every distinct operator of the model; empty if the model can't be captured.
        findings: The broken links, their fixes, and other relevant properties of the model.
        engines: The version of each engine that was queried, by name.
        opset: The lowest opset that supports the model; None if it can't be captured.
        opset_reason: The reason for the opset.
        seconds: The duration of the diagnosis in seconds.
        details: The details of a failed capture, for a log; otherwise empty.
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
