"""The data of the report page, taken from a bundle's files: small, flat and in display order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opbridge.proof.verify.verification import status_words, tolerance_text
from opbridge.report.graph_picture import graph_picture
from opbridge.report.page_words import Summary, badness, passes, sizes, summarise
from opbridge.report.words import divergence_words, fixed_by, unit_words

__all__ = ["page_data"]

_MOST_VALUES = 40_000
"""The maximum number of traced values in all traces; above it, each trace keeps the worst value per depth range."""

_MOST_HISTOGRAMS = 6
_NAMES = {"user": "user", "catalog": "opbridge's catalog", "torch": "torch.onnx", "onnx": "the ONNX model"}


def page_data(data: Mapping[str, Any], summary: Summary | None = None) -> dict[str, Any]:
    """The data that the page's script reads.

    Args:
        data: The result of ``Bundle.to_dict()``.
        summary: The summary of ``data``; None to compute it.
    """
    manifest, sources = data["manifest"], data["sources"]
    verification = data.get("verification") or {}
    nodes = _Nodes(sources)
    traces = verification.get("traces", ())
    most = max(200, _MOST_VALUES // max(1, len(traces)))
    return {
        "engines": _engines(manifest, summary or summarise(data)),
        "models": [{**model, "bytes": _bytes(manifest, model["file"])} for model in manifest["models"]],
        "reference": verification.get("reference", ""),
        "unit": unit_words(verification),
        "cases": [{**case, "sizes": sizes(case)} for case in verification.get("cases", ())],
        "outputs": [_comparison(row) for row in sorted(verification.get("comparisons", ()), key=badness, reverse=True)],
        "histograms": _histograms(verification.get("comparisons", ())),
        "traces": [_trace(trace, nodes, most) for trace in traces],
        "divergences": [_divergence(found, nodes) for found in verification.get("divergences", ())],
        "crashes": [_crash(crash, nodes) for crash in verification.get("crashes", ())],
        "special_values": verification.get("special_values", []),
        "timings": [_timing(timing, nodes) for timing in verification.get("timings", ())],
        "benchmark": data.get("benchmark"),
        "operators": [_operator(operator, manifest, sources) for operator in manifest.get("operators", ())],
        "findings": [_finding(finding) for finding in sources.get("findings", ())],
        "adaptations": [
            {"engine": engine, **item} for engine, items in manifest.get("adaptations", {}).items() for item in items
        ],
        "kernels": manifest.get("kernels", []),
        "facts": _facts(manifest, verification),
        "versions": {"opbridge": manifest["opbridge"], **manifest.get("versions", {})},
        "inputs": manifest["inputs"],
        "results": manifest["outputs"],
        "graph": graph_picture(sources.get("graph", ())),
        "nodes": nodes.rows,
    }


class _Nodes:
    """The nodes of the page without duplicates: name, operator, torch operator, source line, captured node."""

    def __init__(self, sources: Mapping[str, Any]) -> None:
        targets = sources.get("targets", {})
        self.rows: list[list[str]] = []
        self._numbers: dict[str, int] = {}
        for name, source in sources.get("nodes", {}).items():
            self.number(name, target=targets.get(name, ""), source=str(source))

    def number(self, name: str, operator: str = "", target: str = "", source: str = "", captured: str = "") -> int:
        """The row number of a node. Empty columns of the row are filled with the given values."""
        target = target.removesuffix(".default")
        known = self._numbers.get(name)
        if known is None:
            known = self._numbers[name] = len(self.rows)
            self.rows.append([name, "", "", "", ""])
        row = self.rows[known]
        for column, value in enumerate((operator, target, source, captured), 1):
            row[column] = row[column] or value
        return known


def _engines(manifest: Mapping[str, Any], summary: Summary) -> list[dict[str, Any]]:
    files = {name: index for index, model in enumerate(manifest["models"]) for name in model["engines"]}
    return [
        {
            "label": result.engine,
            "verdict": result.verdict,
            "tone": result.tone,
            "reason": result.reason,
            "cases": result.cases,
            "failed": result.failed,
            "worst": _comparison(result.worst) if result.worst is not None else None,
            "model": next((index for name, index in files.items() if result.engine.split(" ")[0] == name), 0),
        }
        for result in summary.engines
    ]


def _comparison(row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = ("engine_error", "torch_error", "budget", "ratio", "max_abs", "max_rel", "max_ulp")
    found = {key: _number(row.get(key, 0.0)) for key in numbers}
    words = {key: row.get(key, "") for key in ("output", "case", "detail", "engine")}
    return {
        **words,
        "status": status_words(row["status"]),
        **found,
        "passed": passes(row["status"]),
        "ill_conditioned": row.get("ill_conditioned", False),
    }


def _histograms(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The histograms of the outputs with the largest errors, one per output and engine."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=badness, reverse=True):
        key = (row.get("engine", ""), row["output"])
        if row.get("histogram") and key not in found and len(found) < _MOST_HISTOGRAMS:
            found[key] = {**_comparison(row), **_aligned(row["histogram"], row.get("torch_histogram", ()))}
    return list(found.values())


def _aligned(engine: Sequence[Sequence[Any]], torch: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Two histograms over the same bounds; infinity is a string."""
    counts = [{float(bound): int(count) for bound, count in histogram} for histogram in (engine, torch)]
    bounds = sorted({*counts[0], *counts[1]})
    return {
        "bounds": [_number(bound) for bound in bounds],
        "engine_counts": [counts[0].get(bound, 0) for bound in bounds],
        "torch_counts": [counts[1].get(bound, 0) for bound in bounds],
    }


def _trace(trace: Mapping[str, Any], nodes: _Nodes, most: int) -> dict[str, Any]:
    values = _thinned(trace["values"], trace["depth"], most)
    return {
        "case": trace["case"],
        "engine": trace.get("engine", ""),
        "depth": trace["depth"],
        "runs": trace.get("runs", 1),
        "values": [_traced(value, nodes) for value in values],
        "left_out": len(trace["values"]) - len(values),
    }


def _thinned(values: Sequence[Mapping[str, Any]], depth: int, most: int) -> list[Mapping[str, Any]]:
    if len(values) <= most:
        return list(values)
    worst: dict[int, Mapping[str, Any]] = {}
    for value in values:
        stretch = value["depth"] * most // max(1, depth)
        if stretch not in worst or badness(value) > badness(worst[stretch]):
            worst[stretch] = value
    return [worst[stretch] for stretch in sorted(worst)]


def _traced(value: Mapping[str, Any], nodes: _Nodes) -> list[Any]:
    node = nodes.number(value["node"], value["operator"], value["target"], value["source"], value["fx_node"])
    errors = [_number(value[key]) for key in ("engine_error", "torch_error", "budget", "ratio")]
    return [node, value["value"], value["depth"], status_words(value["status"]), *errors, value["detail"]]


def _divergence(divergence: Mapping[str, Any], nodes: _Nodes) -> dict[str, Any]:
    first = divergence["first"]
    return {
        **{key: divergence.get(key, "") for key in ("case", "detail", "runs", "engine")},
        "verdict": divergence_words(divergence["verdict"]),
        "between": list(divergence["between"]),
        "first": None if first is None else _traced(first, nodes),
    }


def _crash(crash: Mapping[str, Any], nodes: _Nodes) -> dict[str, Any]:
    node = nodes.number(crash["node"], crash["operator"], source=crash["source"]) if crash["node"] else None
    kept = ("case", "cause", "signal", "message", "log", "runs", "detail", "engine")
    return {**{key: crash[key] for key in kept}, "between": list(crash["between"]), "node": node}


def _timing(timing: Mapping[str, Any], nodes: _Nodes) -> dict[str, Any]:
    node = nodes.number(timing["node"], timing["operator"], timing["target"])
    return {
        "node": node,
        "operator": timing["operator"],
        "target": timing["target"],
        "seconds": _number(timing["seconds"]),
        "torch_seconds": None if timing["torch_seconds"] is None else _number(timing["torch_seconds"]),
        "engine": timing.get("engine", ""),
    }


def _operator(operator: Mapping[str, Any], manifest: Mapping[str, Any], sources: Mapping[str, Any]) -> dict[str, Any]:
    found = sources.get("operators", {}).get(operator["target"], [])
    return {**operator, "sources": found, "links": _links(operator, manifest)}


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {**finding, "fixed": fixed_by(finding.get("rung")) if finding["mended"] else ""}


def _links(operator: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """How each of the three links is made. No link is missing: such a model is not exported."""
    rung, provider = operator["rung"], _NAMES.get(operator.get("provider", ""), operator.get("provider", ""))
    if operator.get("provider") == "onnx" or "original" in manifest:
        first, second = "ONNX model", "ONNX model"
    else:
        first = "rewritten" if rung == "rewrite" else "captured"
        second = {"function": "custom node", "kernel": "custom node"}.get(rung, provider)
    third = {"function": "function body", "kernel": "compiled kernel"}.get(rung, "engine’s kernel")
    return [first, second, third]


def _facts(manifest: Mapping[str, Any], verification: Mapping[str, Any]) -> list[list[str]]:
    """The facts that a reader needs to reproduce the export and the verification."""
    ranges = [f"{name}: {low} to {'any' if high is None else high}" for name, (low, high) in _dynamic(manifest)]
    seconds = sum(float(value) for value in verification.get("seconds", {}).values())
    found = [
        ["entry", manifest.get("entry") or ""],
        ["dynamic dimensions", ", ".join(ranges)],
        ["opset", manifest.get("opset_reason", "")],
        ["compared with", verification.get("reference", "")],
        ["given tolerance", tolerance_text(verification.get("tolerance") or {})],
        ["input seed", str(verification.get("seed", ""))],
        ["verification time", f"{seconds:.1f} s" if seconds else ""],
        ["weights (hash)", manifest.get("weights") or ""],
        ["manifest (sha256)", manifest.get("sha256", "")],
    ]
    return [fact for fact in found if fact[1]]


def _dynamic(manifest: Mapping[str, Any]) -> Iterable[tuple[str, Sequence[int | None]]]:
    return manifest.get("dynamic", {}).items()


def _bytes(manifest: Mapping[str, Any], model: str) -> int:
    return sum(int(file["bytes"]) for name, file in manifest["files"].items() if name.startswith(model))


def _number(value: Any) -> float | str:
    """Four significant digits; "inf" and "nan" as strings, because JSON has no such numbers."""
    number = float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else str(number)
