"""The page docs/packages.md, written from the rows of benchmarks/packages.py."""

from __future__ import annotations

import importlib.metadata
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from packages_fixes import AS_PRINTED, FIXES
from side_by_side import EXPORTERS, TITLES, VERDICTS, Exporter, Row, share_of_captured

__all__ = ["page"]

ENVIRONMENT = ("torch", "onnxruntime", "onnx", "onnxscript", "onnx-ir", "torchvision")
LONGEST_REASON = 400

INTRODUCTION = """# Modules of public packages

`python benchmarks/packages.py` exports {modules} modules of {packages} packages with opbridge and with
`torch.onnx.export(dynamo=True)`. Each model in ONNX Runtime is compared with eager PyTorch, without opbridge's
verifier, at the sizes of the example, and with each declared dimension at a larger and at a smaller size, alone and
together.
`tests/support/side_by_side.py` says what is equal, and what each verdict means. The modules were chosen by what people
deploy, and the list was frozen before the first result. Weights are random and configurations small. An export with its
comparison may take 300 s, on two cores that did other work at the same time.

**Right: opbridge {right_opbridge} of {measured_opbridge}, torch.onnx.export {right_torch} of {measured_torch}.**
{share}

With {environment}; the packages are those of `benchmarks/packages.txt`; on x86-64, measured {dates}. {commits}
"""


def page(lines: Sequence[dict[str, Any]], names: Collection[str]) -> str:
    """The page.

    Args:
        lines: The last row of each module and exporter, with its commit and date.
        names: The modules, in the order of the table.
    """
    followed = {line["row"]["name"]: Row.from_dict(line["row"]) for line in lines if AS_PRINTED in line["row"]["name"]}
    lines = [line for line in lines if line["row"]["name"] in names]
    rows = {(line["row"]["name"], line["row"]["exporter"]): Row.from_dict(line["row"]) for line in lines}
    commits = {(line["row"]["name"], line["row"]["exporter"]): line["commit"] for line in lines}
    right = Counter(exporter for (_, exporter), row in rows.items() if row.verdict == "right")
    measured = Counter(exporter for _, exporter in rows)
    text = INTRODUCTION.format(
        modules=len(names),
        packages=len({_package(name) for name in names}),
        right_opbridge=right["opbridge"],
        right_torch=right["torch"],
        measured_opbridge=measured["opbridge"],
        measured_torch=measured["torch"],
        share=share_of_captured(rows.values()),
        environment=", ".join(f"{name} {importlib.metadata.version(name)}" for name in ENVIRONMENT),
        dates=" to ".join(dict.fromkeys((min(line["date"] for line in lines), max(line["date"] for line in lines)))),
        commits=_commits(lines) + _unmeasured(names, rows),
    )
    parts = [text, _totals(rows.values()), _modules(names, rows)]
    for exporter in ("opbridge", "torch"):
        missed = [row for name in names if (row := rows.get((name, exporter))) and row.verdict != "right"]
        parts.append(_reasons(exporter, missed, {row.name: commits[row.name, exporter] for row in missed}, followed))
    parts.insert(4, _fixes(followed))
    return "\n".join(parts)


def _commits(lines: Sequence[dict[str, Any]]) -> str:
    """Which rows of opbridge were measured at which commit."""
    counts = Counter(line["commit"] for line in lines if line["row"]["exporter"] == "opbridge")
    if len(counts) == 1:
        return f"opbridge is commit {next(iter(counts))}."
    parts = [f"{count} at {commit}" for commit, count in counts.most_common()]
    return (
        f"The rows of opbridge were measured at several commits: {', '.join(parts)}. Not all rows that were right at "
        "an early commit were measured again at a later one."
    )


def _unmeasured(names: Collection[str], rows: Collection[tuple[str, Exporter]]) -> str:
    """How many modules have no row yet."""
    missing = {exporter: sum((name, exporter) not in rows for name in names) for exporter in EXPORTERS}
    texts = [f"{count} with {TITLES[exporter]}" for exporter, count in missing.items() if count]
    return f" Modules not measured yet: {', '.join(texts)}." if texts else ""


def _totals(rows: Collection[Row]) -> str:
    lines = [_cells("verdict", *TITLES.values()), _rule(1 + len(TITLES))]
    counts = Counter((row.exporter, row.verdict) for row in rows)
    for verdict in VERDICTS:
        if any(counts[exporter, verdict] for exporter in EXPORTERS):
            lines.append(_cells(verdict, *(str(counts[exporter, verdict]) for exporter in EXPORTERS)))
    return "\n".join(lines) + "\n"


def _modules(names: Collection[str], rows: dict[tuple[str, Exporter], Row]) -> str:
    lines = [_cells("package", "module", *TITLES.values()), _rule(2 + len(TITLES))]
    for name in names:
        package, _, module = name.partition("/")
        version = importlib.metadata.version(package).partition("+")[0]
        verdicts = [rows[name, one].verdict if (name, one) in rows else "not measured" for one in EXPORTERS]
        lines.append(_cells(f"{package} {version}", module, *verdicts))
    return "\n".join(lines) + "\n"


def _reasons(exporter: Exporter, rows: Sequence[Row], commits: dict[str, str], followed: Mapping[str, Row]) -> str:
    if not rows:
        return ""
    own = exporter == "opbridge"
    heads = ["module", "verdict", "reason", *(["fix", "as printed", "commit"] if own else [])]
    lines = [f"## Not right with {TITLES[exporter]}", "", _cells(*heads), _rule(len(heads))]
    for row in rows:
        texts = [row.name, row.verdict, _short(row.reason)]
        if own:
            fixed = followed.get(row.name + AS_PRINTED)
            texts += [_short(row.fix), fixed.verdict if fixed is not None else "not followed", commits[row.name]]
        lines.append(_cells(*texts))
    return "\n".join(lines) + "\n"


def _fixes(rows: Mapping[str, Row]) -> str:
    """What came of the printed fixes, one or more of each kind."""
    if not rows:
        return ""
    text = (
        "The printed fixes were followed literally for some modules of each kind (`benchmarks/packages_fixes.py`). "
        "Where the fix of one dimension led to a fix of the next, both were followed."
    )
    lines = ["## Printed fixes", "", text, "", _cells("module", "what was done", "opbridge", "reason"), _rule(4)]
    for name, fix in FIXES.items():
        row = rows.get(name + AS_PRINTED)
        if row is not None:
            lines.append(_cells(name, fix.text, row.verdict, _short(row.reason)))
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    """Without the names of temporary folders, and not too long."""
    text = re.sub(r"/[\w./-]*/(?=[\w.-]+\.(onnx|py|h|cc)\b)", "", text)
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def _cells(*texts: str) -> str:
    escaped = (" ".join(text.split()).replace("|", "\\|").replace("<", "&lt;") for text in texts)
    return "| " + " | ".join(escaped) + " |"


def _rule(count: int) -> str:
    return "|" + "---|" * count


def _package(name: str) -> str:
    return name.partition("/")[0]
