"""The result of a verification, as data. This module does not import torch."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from typing import Literal

from opbridge.capture.assumption import verdict_text
from opbridge.engines.process.crash import Crash
from opbridge.proof.verify.special_values import SpecialValues
from opbridge.proof.verify.trace import Divergence, Status, Timing, Trace
from opbridge.records import StoredRecord

__all__ = [
    "DEFAULT_SEED",
    "NOT_VERIFIED",
    "OUTSIDE",
    "PASSING",
    "CaseResult",
    "CaseVerdict",
    "Comparison",
    "EngineVerdict",
    "Verdict",
    "Verification",
    "error_words",
    "outside_text",
    "share_of_tolerance",
    "status_words",
    "tolerance_text",
]

DEFAULT_SEED = 20_260_101
"""The default is fixed, so that two verifications of a model use the same inputs."""

CaseVerdict = Literal["passed", "failed", "error", "not verified", "outside the contract"]
"""The verdict on one case."""

Verdict = Literal["passed", "failed", "error", "not verified", "built, not run", "exported, not run"]
"""The verdict on one engine, or on several."""

NOT_VERIFIED: Literal["not verified"] = "not verified"
"""The verdict if there is nothing to compare with."""

OUTSIDE: Literal["outside the contract"] = "outside the contract"
"""The verdict on a case with NaN in PyTorch's own run, if the model was exported without support for NaN."""

_STATUSES = {
    "equal": "identical",
    "within budget": "pass",
    "decision": "pass (near tie)",
    "random": "pass (same distribution)",
    "differs": "mismatch",
    "shape": "wrong shape",
    "dtype": "wrong dtype",
}

PYTORCH = "PyTorch"

PASSING = frozenset({"equal", "within budget", "decision", "random"})
"""The statuses of outputs that pass."""


@dataclasses.dataclass(frozen=True)
class Comparison(StoredRecord):
    """One output of the engine compared with the reference's, on one case.

    Attributes:
        output: The output's ONNX name.
        case: The name of the case (see :class:`CaseResult`).
        status: "equal" (bit for bit), "within budget", "decision" (differs only where a discrete decision is a near
            tie) and "random" (same distribution) pass; "differs", "shape", "dtype" and "missing" fail.
        max_abs: The largest absolute difference from PyTorch's result in its own dtype.
        max_rel: The largest relative difference from that result, over the elements that are not zero.
        engine_error: The engine's largest error against the float64 reference, in units (see ``compare``).
        torch_error: The largest error of PyTorch's own result, in the same units.
        ratio: ``engine_error`` divided by ``budget``, at the quantile where it is largest; more than 1 fails.
        budget: The largest ``engine_error`` allowed, in units.
        detail: The reason, in one line.
        max_ulp: The largest distance between the two results in steps of their dtype (units in the last place).
        histogram: The histogram of the engine's errors in units: pairs (upper bound, number of elements). The bounds
            are powers of 2, and the last one is infinity. Empty for outputs that are compared exactly.
        torch_histogram: The errors of PyTorch's own result, with the same bounds.
        engine: The engine, if several were verified.
        relative_error: The 90% quantile of the engine's error, divided by the typical magnitude.
        torch_relative_error: The 90% quantile of the error of PyTorch's own result, divided by the typical magnitude.
        ill_conditioned: Whether PyTorch's own result has lost at least half of its digits on this input.
    """

    output: str
    case: str
    status: Status
    max_abs: float = 0.0
    max_rel: float = 0.0
    engine_error: float = 0.0
    torch_error: float = 0.0
    ratio: float = 0.0
    budget: float = 0.0
    detail: str = ""
    max_ulp: float = 0.0
    histogram: tuple[tuple[float, int], ...] = ()
    torch_histogram: tuple[tuple[float, int], ...] = ()
    engine: str = ""
    relative_error: float = 0.0
    torch_relative_error: float = 0.0
    ill_conditioned: bool = False

    @property
    def passed(self) -> bool:
        """Whether this output passes."""
        return self.status in PASSING

    @property
    def words(self) -> str:
        """The error relative to the tolerance, or the status if there is no error: ``"3.4 times the tolerance"``."""
        return error_words(self.ratio) if self.budget else status_words(self.status)

    def __str__(self) -> str:
        measured = (
            f" ({error_words(self.ratio)})" if self.status in {"within budget", "differs"} and self.budget else ""
        )
        return f"{self.output}: {status_words(self.status)}{measured}{'; ' + self.detail if self.detail else ''}"


@dataclasses.dataclass(frozen=True)
class CaseResult(StoredRecord):
    """One set of inputs.

    Attributes:
        name: "example sizes", "sizes 2", "sizes 3", or "size n=0" for edge sizes; for the user's own inputs the name
            of the case or of the file, or "given 1".
        sizes: The size of every dynamic dimension, by the user's name or torch's symbol.
        verdict: "passed", "failed", "error" if the engine did not run, "not verified" if there is nothing to compare
            with, or :data:`OUTSIDE`.
        eager_matches: Whether the user's module and the captured graph agree; None if there is no module.
        error: The engine's message.
        notes: Notes for the reader: sizes that were refused, operators without a float64 implementation.
        engine: The engine, if several were verified.
        failing_input: The file in the bundle with a small input on which the engine fails too; empty if there is none.
    """

    name: str
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    verdict: CaseVerdict = "passed"
    eager_matches: bool | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()
    engine: str = ""
    failing_input: str = ""


@dataclasses.dataclass(frozen=True)
class EngineVerdict(StoredRecord):
    """The result of one engine of several.

    Attributes:
        engine: The engine's label, which says how custom operators ran: "onnxruntime with kernels".
        verdict: The verdict, as in :class:`Verification`.
        error: The engine's first error, or why the engine did not run.
    """

    engine: str
    verdict: Verdict
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Verification(StoredRecord):
    """Whether an engine computes what PyTorch, or the user's ONNX model, computes.

    Attributes:
        engine: The engine's name.
        verdict: "passed", "failed", "error" if the engine did not run on some case, "not verified" if there is no
            reference or if a case is outside the contract, or one of :data:`~opbridge.engines.base.NOT_RUN`; ``error``
            then gives the reason.
        cases: The sets of inputs that were tried.
        comparisons: One per case and output.
        seconds: ``{"runs": ..., "overhead": ...}``: the time in the reference and the engine, and all other time.
        seed: The seed of the inputs.
        error: The first error.
        eager_matches_capture: Whether the user's module and the captured graph agree on every case; None if there is
            no module.
        reference: A description of the reference.
        divergences: The first mismatching node of each case that failed.
        traces: The error against the depth of the model, if requested.
        timings: The time of each node, if requested and if the engine measures it.
        special_values: The results of special values in the inputs, if requested.
        crashes: How the engine's process ended, for each case on which it crashed, hung or ran out of memory.
        engines: The result of each engine, if several were verified.
        tolerance: ``{"rtol": ..., "atol": ...}`` if a tolerance was given, which replaced the tolerance.
        resumed: The number of cases that passed before the verification was interrupted, and were not run again.
        assumptions: What the model assumes, because it holds for the example inputs: ``"batch is 2 (model.py:12)"``.
            Inputs that violate an assumption are not among the cases.
    """

    engine: str
    verdict: Verdict
    cases: tuple[CaseResult, ...]
    comparisons: tuple[Comparison, ...]
    seconds: Mapping[str, float]
    seed: int
    error: str | None = None
    eager_matches_capture: bool | None = None
    reference: str = PYTORCH
    divergences: tuple[Divergence, ...] = ()
    traces: tuple[Trace, ...] = ()
    timings: tuple[Timing, ...] = ()
    special_values: tuple[SpecialValues, ...] = ()
    crashes: tuple[Crash, ...] = ()
    engines: tuple[EngineVerdict, ...] = ()
    tolerance: Mapping[str, float] | None = None
    resumed: int = 0
    assumptions: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every case passed, and nothing is assumed."""
        return self.verdict == "passed" and not self.assumptions

    def __repr__(self) -> str:
        """``"Verification(onnxruntime: passed on 3 cases)"``; with the failing outputs, if there are any."""
        failing = [comparison for comparison in self.comparisons if not comparison.passed]
        shown = (f"; {item.case}, {item.output}: {item.words}" for item in failing[:3])
        return f"{type(self).__name__}({self._headline()}{''.join(shown)})"

    def __str__(self) -> str:
        """The :meth:`summary`."""
        return self.summary()

    def _repr_html_(self) -> str:
        """The :meth:`summary`, for a notebook."""
        return f"<pre>{html.escape(self.summary())}</pre>"

    def _headline(self) -> str:
        cases = f"{len(self.cases)} case{'' if len(self.cases) == 1 else 's'}"
        return f"{self.engine}: {verdict_text(self.verdict, self.assumptions)} on {cases}"

    def summary(self) -> str:
        """The result as text: the verdict, then one line per output with its error."""
        lines = [f"{self._headline()} (seed {self.seed})"]
        lines += [f"  {one.engine}: {one.verdict}{f': {one.error}' if one.error else ''}" for one in self.engines]
        lines += [f"  assumed: {assumption}" for assumption in self.assumptions]
        if self.tolerance is not None:
            lines.append(f"  the given tolerance, {tolerance_text(self.tolerance)}, replaces the computed one")
        if self.resumed:
            lines.append(f"  {self.resumed} of these had passed before the verification was interrupted")
        for case in self.cases:
            sizes = ", ".join(f"{name}={size}" for name, size in case.sizes.items())
            name = f"{case.engine}, {case.name}" if case.engine else case.name
            lines.append(f"  {name}{f' ({sizes})' if sizes else ''}: {case.verdict}")
            if case.error:
                lines.append(f"    {case.error}")
            if case.eager_matches is False:
                lines.append("    the captured graph does not compute what the module computes")
            mine = (case.name, case.engine)
            lines += [f"    {found}" for found in self.comparisons if (found.case, found.engine) == mine]
            lines += [f"    {found}" for found in self.divergences if (found.case, found.engine) == mine]
            lines += [f"    note: {note}" for note in case.notes]
            if case.failing_input:
                lines.append(f"    also fails on the small input in {case.failing_input}")
        lines += [f"  {line}" for special in self.special_values for line in f"special values, {special}".splitlines()]
        return "\n".join(lines)


def share_of_tolerance(ratio: float | str) -> str:
    """The error as a share of the tolerance: ``"4.9%"``; ``"3.4x"`` if it is larger than the tolerance."""
    share = float(ratio)
    if share <= 1:
        return f"{100 * share:.2g}%" if share >= 1e-3 or share == 0 else "<0.1%"
    return f"{share:.3g}x"


def error_words(ratio: float | str) -> str:
    """The error relative to the tolerance: ``"4.9% of the tolerance"``, ``"3.4 times the tolerance"``."""
    share = float(ratio)
    return f"{share:.3g} times the tolerance" if share > 1 else f"{share_of_tolerance(share)} of the tolerance"


def status_words(status: str) -> str:
    """The status of a comparison: ``"pass"`` for ``"within budget"``."""
    return _STATUSES.get(status, status)


def outside_text(value: str) -> str:
    """Why a case is outside the contract: ``value`` describes what is NaN."""
    return f"{OUTSIDE}: {value} is NaN in PyTorch; to verify such inputs, export with nan='exact' (--nan exact)"


def tolerance_text(tolerance: Mapping[str, float]) -> str:
    """A given tolerance as text: ``"rtol=0.001, atol=0"``."""
    return ", ".join(f"{name}={value:g}" for name, value in tolerance.items())
