"""A bundle's report in Markdown, for the summary of a CI job or a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opbridge.proof.verify.verification import status_words
from opbridge.records import printable
from opbridge.report.page_words import badness, passes, sizes, summarise, times
from opbridge.report.tables import number, place, plural
from opbridge.report.words import divergence_words, unit_words

__all__ = ["render_markdown"]

_MOST_ROWS = 50
_MARKS = {"good": "✅", "bad": "❌", "open": "⚪"}


def render_markdown(data: Mapping[str, Any]) -> str:
    """The report of ``Bundle.to_dict()``. Names are escaped, so that they can't become markup or hide other text."""
    data = printable(data)
    summary = summarise(data)
    lines = [f"## {_MARKS[summary.tone]} {_plain(summary.title)}", ""]
    for sentence in summary.sentences:
        lines += [_plain(sentence), ""]
    if len(summary.engines) > 1:
        rows = [
            (
                result.engine,
                f"{_MARKS[result.tone]} {result.verdict}",
                f"{result.cases - result.failed} of {result.cases}",
            )
            for result in summary.engines
        ]
        lines += ["### Engines", "", *_table(("engine", "result", "sets of inputs passed"), rows), ""]
    verification = data.get("verification") or {}
    lines += [*_divergences(verification), *_outputs(verification), *_cases(verification)]
    lines += [*_operators(data), *_findings(data["sources"]), *_versions(data["manifest"])]
    return "\n".join(lines).rstrip() + "\n"


def _divergences(verification: Mapping[str, Any]) -> Iterator[str]:
    found = verification.get("divergences", ())
    if not found:
        return
    rows = []
    for divergence in found:
        first = divergence["first"] or {}
        rows.append(
            (
                divergence.get("engine", ""),
                divergence["case"],
                divergence_words(divergence["verdict"]),
                *(first.get(key, "").removesuffix(".default") for key in ("node", "operator", "target", "source")),
                divergence["detail"] or first.get("detail", ""),
            )
        )
    headings = ("engine", "inputs", "verdict", "node", "operator", "torch operator", "source", "detail")
    yield from ("### First mismatching node", "", *_table(headings, rows), "")


def _outputs(verification: Mapping[str, Any]) -> Iterator[str]:
    found = sorted(verification.get("comparisons", ()), key=badness, reverse=True)
    if not found:
        return
    rows = [
        (
            row["output"],
            row.get("engine", ""),
            row["case"],
            f"{'✅' if passes(row['status']) else '❌'} {status_words(row['status'])}",
            times(float(row["ratio"])) if row["budget"] else "",
            number(row["engine_error"]),
            number(row["torch_error"]),
            number(row["budget"]) if row["budget"] else "exact",
            row["detail"],
        )
        for row in found[:_MOST_ROWS]
    ]
    headings = (
        "output",
        "engine",
        "inputs",
        "result",
        "used",
        "max error",
        "PyTorch’s error",
        "tolerance",
        "detail",
    )
    yield from ("### Outputs", "", *_table(headings, rows))
    if len(found) > _MOST_ROWS:
        yield f"\nand {len(found) - _MOST_ROWS} more with smaller errors"
    yield f"\n{unit_words(verification)}\n"


def _cases(verification: Mapping[str, Any]) -> Iterator[str]:
    for case in verification.get("cases", ()):
        label = ", ".join(filter(None, (case.get("engine", ""), case["name"], sizes(case))))
        if case["error"]:
            yield f"- **{_plain(label)}**: {_plain(case['error'])}"
        if case["eager_matches"] is False:
            yield f"- **{_plain(label)}**: the captured graph and the module give different results"
    yield ""


def _operators(data: Mapping[str, Any]) -> Iterator[str]:
    operators = data["manifest"].get("operators", ())
    bridged = [row for row in operators if row["rung"] not in ("native", "opset")]
    if not operators:
        return
    yield f"### Operators\n\n{plural(len(operators), 'operator')}, {len(bridged)} with a custom mapping or kernel.\n"
    where = data["sources"].get("operators", {})
    rows = [
        (row["target"], row["rung"], row.get("provider", ""), str(row["count"]), place(where.get(row["target"])))
        for row in bridged[:_MOST_ROWS]
    ]
    if rows:
        yield from (*_table(("operator", "rung", "provided by", "uses", "where"), rows), "")


def _findings(sources: Mapping[str, Any]) -> Iterator[str]:
    found = [
        finding for finding in sources.get("findings", ()) if finding["severity"] != "info" and not finding["mended"]
    ]
    if found:
        yield from ("### Findings", "")
    for finding in found[:_MOST_ROWS]:
        yield f"- **{_plain(finding['severity'])} {_plain(finding['code'])}**: {_plain(finding['message'])}"
        yield f"  Fix: {_plain(finding['fix'])}"
    yield ""


def _versions(manifest: Mapping[str, Any]) -> Iterator[str]:
    versions = {"opbridge": manifest["opbridge"], **manifest.get("versions", {})}
    yield _plain(", ".join(f"{name} {version}" for name, version in versions.items()))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table without the columns that are empty in all rows."""
    kept = [index for index in range(len(headings)) if any(row[index] for row in rows)]
    yield "| " + " | ".join(headings[index] for index in kept) + " |"
    yield "|" + "---|" * len(kept)
    for row in rows:
        yield "| " + " | ".join(_plain(row[index]) for index in kept) + " |"


def _plain(text: str) -> str:
    """Escaped text on one line."""
    escaped = re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", " ".join(str(text).split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
