"""Where the values inside a model differ from PyTorch's: data only, like ``verification.py``.

A trace compares values of the ONNX graph with those of the captured graph, in the order of the graph. A departure is
the first mismatching node: the first value that is not what PyTorch computes, with the node that computes it.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from opbridge.records import StoredRecord

__all__ = ["Departure", "DepartureVerdict", "Status", "Timing", "Trace", "TracedValue"]

Status = Literal["equal", "within budget", "decision", "random", "differs", "shape", "dtype", "missing", "not compared"]
"""How an output or a value compares with the reference's."""

DepartureVerdict = Literal["departs", "vanishes when observed", "not deterministic", "not found"]
"""The result of a bisection."""


@dataclasses.dataclass(frozen=True)
class TracedValue(StoredRecord):
    """One value of the ONNX graph, compared with the same value of the captured graph.

    Attributes:
        value: The value's name in the ONNX model.
        node: The name of the ONNX node that computes the value.
        operator: The node's operator, ``"domain::Op"``; the standard domain is written ``"ai.onnx"``.
        depth: The node's position in the order of the graph, from 0.
        target: The torch operator that the value comes from; empty if that is not known.
        fx_node: The node of the captured graph that has this value.
        source: The user's line, ``"file.py:12"``; empty if that is not known.
        status: The status, as in :class:`~opbridge.proof.verify.verification.Comparison`.
        engine_error: The engine's largest error against the float64 reference, in units.
        torch_error: The largest error of PyTorch's own result, in the same units.
        budget: The units allowed to ``engine_error``.
        ratio: ``engine_error`` divided by ``budget`` where it is largest; more than 1 fails.
        detail: The reason, in one line.
    """

    value: str
    node: str
    operator: str
    depth: int
    target: str = ""
    fx_node: str = ""
    source: str = ""
    status: Status = "equal"
    engine_error: float = 0.0
    torch_error: float = 0.0
    budget: float = 0.0
    ratio: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        origin = f", of {self.target}" if self.target else ""
        return f"{self.node or self.value} ({self.operator}{origin}){f' at {self.source}' if self.source else ''}"


@dataclasses.dataclass(frozen=True)
class Trace(StoredRecord):
    """The error against the depth of a model, on one case.

    Attributes:
        case: The case's name.
        depth: The number of nodes of the graph.
        values: The values that were compared, in the order of the graph; all, or as many as a plot can show.
        runs: The number of runs of the engine that the comparison took.
        engine: The engine, if several were verified.
    """

    case: str
    depth: int
    values: tuple[TracedValue, ...]
    runs: int = 1
    engine: str = ""


@dataclasses.dataclass(frozen=True)
class Departure(StoredRecord):
    """The first mismatching node: the first whose error exceeds the budget.

    Attributes:
        case: The case on which the outputs did not fit.
        verdict: "departs" (``first`` is the node), "vanishes when observed" (with its values marked as outputs the
            engine computes the right ones, so an optimisation of the engine is at fault), "not deterministic" (the
            engine gives other results for equal inputs), or "not found" (no value between inputs and outputs has a
            counterpart in the captured graph).
        first: The value; for "not found" and "vanishes when observed" the output that differs.
        between: The nodes among which the fault must lie, by name: those without a counterpart in the captured graph
            between the last sound values and ``first``.
        runs: The number of runs of the engine that the search took.
        detail: A note for the reader, in one line.
        engine: The engine, if several were verified.
    """

    case: str
    verdict: DepartureVerdict
    first: TracedValue | None
    between: tuple[str, ...] = ()
    runs: int = 0
    detail: str = ""
    engine: str = ""

    def __str__(self) -> str:
        first, detail = self.first, f": {self.detail}" if self.detail else ""
        if self.verdict in ("vanishes when observed", "not found"):
            return f"first mismatching node: {self.verdict}{detail}"
        errors = ""
        if first is not None and first.budget:
            measured = (first.engine_error, first.torch_error, first.budget)
            errors = " (error: engine {:.3g}, PyTorch {:.3g}; tolerance {:.3g} units)".format(*measured)
        shown = ", ".join(self.between[:3]) + (f" and {len(self.between) - 3} more" if len(self.between) > 3 else "")
        among = f", or {shown} before it" if shown else ""
        changing = "" if self.verdict == "departs" else "not deterministic, "
        return f"{changing}first mismatching node: {first}{among}{detail}{errors}"


@dataclasses.dataclass(frozen=True)
class Timing(StoredRecord):
    """What one node costs.

    Attributes:
        node: The ONNX node's name, as far as the engine kept it; fused nodes have the engine's name.
        operator: The node's operator.
        seconds: The engine's time for it, the median of several runs.
        target: The torch operator that the node comes from, or several, joined by " + ", if the engine fused them;
            empty if that is not known.
        torch_seconds: PyTorch's time for all calls of that operator, or of the fused operators; None if that is not
            known.
        engine: The engine, if several were verified.
    """

    node: str
    operator: str
    seconds: float
    target: str = ""
    torch_seconds: float | None = None
    engine: str = ""
