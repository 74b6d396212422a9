"""Comparisons of intermediate values with PyTorch's, as data.

A trace compares values of the ONNX graph with those of the captured graph, in the order of the graph. A divergence is
the first mismatching node: the first value that differs from what PyTorch computes, with the node that computes it.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from opbridge.records import StoredRecord, rounded

__all__ = ["Divergence", "DivergenceVerdict", "Status", "Timing", "Trace", "TracedValue"]

Status = Literal["equal", "within budget", "decision", "random", "differs", "shape", "dtype", "missing", "not compared"]
"""How an output or a value compares with the reference's."""

DivergenceVerdict = Literal["diverges", "vanishes when observed", "not deterministic", "not found"]
"""The result of a bisection."""


@dataclasses.dataclass(frozen=True)
class TracedValue(StoredRecord):
    """One value of the ONNX graph, compared with the same value of the captured graph.

    Attributes:
        value: The value's name in the ONNX model.
        node: The name of the ONNX node that computes the value.
        operator: The node's operator, ``"domain::Op"``; the standard domain is written ``"ai.onnx"``.
        depth: The node's position in the order of the graph, from 0.
        target: The torch operator that computes the value; empty if unknown.
        fx_node: The node of the captured graph that computes the value.
        source: The user's line, ``"file.py:12"``; empty if unknown.
        status: The status, as in :class:`~opbridge.proof.verify.verification.Comparison`.
        engine_error: The engine's largest error against the float64 reference, in units.
        torch_error: The largest error of PyTorch's own result, in the same units.
        budget: The largest ``engine_error`` allowed, in units.
        ratio: ``engine_error`` divided by ``budget``, at the quantile where it is largest; more than 1 fails.
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
    """The error as a function of the depth in a model, on one case.

    Attributes:
        case: The case's name.
        depth: The number of nodes of the graph.
        values: The values that were compared, in the order of the graph; at most as many as a plot can show.
        runs: The number of runs of the engine that the comparison took.
        engine: The engine, if several were verified.
    """

    case: str
    depth: int
    values: tuple[TracedValue, ...]
    runs: int = 1
    engine: str = ""


@dataclasses.dataclass(frozen=True)
class Divergence(StoredRecord):
    """The first mismatching node: the first whose error exceeds the budget.

    Attributes:
        case: The case on which outputs failed.
        verdict: "diverges" (``first`` is the node), "vanishes when observed" (if intermediate values are marked as
            outputs, the engine computes correct results, so an optimization of the engine is at fault), "not
            deterministic" (the engine's results differ between runs on equal inputs), or "not found" (no value between
            inputs and outputs has a counterpart in the captured graph).
        first: The value; for "not found" and "vanishes when observed" the output that differs.
        between: The names of the other nodes that may be at fault: those without a counterpart in the captured graph,
            between the last correct values and ``first``.
        runs: The number of runs of the engine that the search took.
        detail: A note for the reader, in one line.
        engine: The engine, if several were verified.
    """

    case: str
    verdict: DivergenceVerdict
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
            engine, torch, limit = map(rounded, (first.engine_error, first.torch_error, first.budget))
            errors = f"; largest error {engine} units (PyTorch's {torch}, tolerance {limit})"
        shown = ", ".join(self.between[:3]) + (f" and {len(self.between) - 3} more" if len(self.between) > 3 else "")
        among = f", or {shown} before it" if shown else ""
        changing = "" if self.verdict == "diverges" else "not deterministic, "
        return f"{changing}first mismatching node: {first}{among}{detail}{errors}"


@dataclasses.dataclass(frozen=True)
class Timing(StoredRecord):
    """The time of one node.

    Attributes:
        node: The ONNX node's name; fused nodes have the name that the engine gives them.
        operator: The node's operator.
        seconds: The engine's time for the node, the median of several runs.
        target: The torch operator that the node computes, or several operators joined by " + " if the engine fused
            them; empty if unknown.
        torch_seconds: PyTorch's time for all calls of that operator, or of the fused operators; None if unknown.
        engine: The engine, if several were verified.
    """

    node: str
    operator: str
    seconds: float
    target: str = ""
    torch_seconds: float | None = None
    engine: str = ""
