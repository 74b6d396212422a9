"""The broken links between a model and the engines, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from opbridge.findings.base import Finding
from opbridge.ladder.step import Step
from opbridge.records import Record
from opbridge.report.diagnosis import diagnosis_view
from opbridge.report.tables import as_html

__all__ = ["Diagnosis", "OperatorLinks"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorLinks(Step):
    """One operator of the model: its rung and its three links.

    Attributes:
        torch: Link 1: whether the operator is captured.
        mapping: Link 2: whether the operator has a mapping to ONNX.
        kernel: Link 3: whether every engine has kernels for the operator's nodes; None if this could not be determined.
    """

    json_keys = (*Step.json_keys, "sources", "links")

    torch: bool
    mapping: bool
    kernel: bool | None

    @property
    def links(self) -> dict[str, bool | None]:
        """The three links by name."""
        return {"torch": self.torch, "mapping": self.mapping, "kernel": self.kernel}


@dataclasses.dataclass(frozen=True)
class Diagnosis(Record):
    """The broken links between a model and the engines.

    Attributes:
        operators: The links of every distinct operator of the model; empty if the model can't be captured.
        findings: The broken links, their fixes, and other relevant properties of the model.
        engines: The version of each engine that was queried, by name.
        opset: The lowest opset that supports the model; None if it can't be captured.
        opset_reason: The reason for the opset.
        seconds: The duration of the diagnosis in seconds, rounded to milliseconds.
        details: The details of a failed capture, for a log; otherwise empty.
    """

    json_keys = ("ok", "opset", "opset_reason", "engines", "operators", "findings", "seconds")

    operators: tuple[OperatorLinks, ...]
    findings: tuple[Finding, ...]
    engines: Mapping[str, str]
    opset: int | None
    opset_reason: str
    seconds: float
    details: str = ""

    def __repr__(self) -> str:
        """``"Diagnosis(17 operators, missing-fake mylib::op; no-kernel aten::exp)"``."""
        problems = [f"{one.code} {one.target}" for one in self.findings if one.severity == "error" and not one.mended]
        count = f"{len(self.operators)} operator{'' if len(self.operators) == 1 else 's'}"
        return f"{type(self).__name__}({count}, {'; '.join(problems) or 'ok'})"

    def _repr_html_(self) -> str:
        """The tables of ``opbridge diagnose``, for a notebook."""
        return as_html(diagnosis_view(self.to_dict()))

    @property
    def ok(self) -> bool:
        """Whether every broken link is fixed by another rung."""
        return not any(finding.severity == "error" and not finding.mended for finding in self.findings)
