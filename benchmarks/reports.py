"""The situations of public reports, exported by opbridge and by torch.onnx.export, beside eager PyTorch.

    python benchmarks/reports.py [TEXT ...] [--exporter opbridge] [--json FILE] [--markdown docs/reports.md]

The situations are those of tests/reports/situations, the comparison is tests/support/side_by_side.py: it does not use
opbridge's verifier. Of a TEXT, the situations whose names contain it are run. The exit code is 1 if a row of opbridge
is not what tests/reports/expected.py says.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "reports")]

HEAD = """# Situations of users

`python benchmarks/reports.py --markdown docs/reports.md` exports {count} models with opbridge and with
`torch.onnx.export(dynamo=True)`, and writes this page. Each model is a few lines, written after a public report, and
its dynamic sizes are those of the report (`tests/reports/situations/`). The list was frozen before any of it was
exported; what opbridge is expected to do with each is a test (`tests/reports/expected.py`).

The judge is `tests/support/side_by_side.py`, not opbridge's verifier: it compares eager PyTorch with ONNX Runtime, at
the example's sizes with fresh values, then with each dynamic dimension at a larger and a smaller size, alone and all
together. Eager PyTorch decides which sizes are legal. In the column torch.export it is the program of
`torch.export.export` that is compared, in PyTorch. "Equal" is defined once, in
`tests/support/side_by_side_equal.py`: the number of outputs, dtypes, shapes, and the error against float64 beside eager
PyTorch's own. The verdicts are defined in `tests/support/side_by_side.py`.

With {versions}.

"""


FOLLOWED = """
Printed fixes that were followed literally (`tests/reports/fixes.py`):

| situation | what was done | opbridge |
|---|---|---|
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the situations that are asked for, by default all."""
    from expected import expected_verdict
    from fixes import FIXES
    from side_by_side import EXPORTERS, Server, to_markdown
    from situations import REPORTS

    parser = argparse.ArgumentParser(description="Situations of public reports, beside eager PyTorch.")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="by default all situations")
    parser.add_argument("--exporter", choices=EXPORTERS, action="append", help="by default all")
    parser.add_argument("--seconds", type=float, default=300.0, help="the time limit of one row")
    parser.add_argument("--json", type=Path, help="write the rows to this file, one per line")
    parser.add_argument("--markdown", type=Path, help="write the page to this file")
    chosen = parser.parse_args(arguments)
    names = [name for name in REPORTS if not chosen.texts or any(text in name for text in chosen.texts)]
    rows = []
    with Server() as server:
        for name in names:
            for exporter in chosen.exporter or EXPORTERS:
                row = server.compare(f"situations:situation#{name}", exporter, name=name, seconds=chosen.seconds)
                print(f"{exporter:9} {row.verdict:18} {row.seconds:6.1f} s  {name}: {row.reason[:160]}", flush=True)
                rows.append(row)
        followed = [
            (name, fix, server.compare(f"fixes:situation#{name}", "opbridge", name=name))
            for name, fix in FIXES.items()
            if name in names
        ]
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in rows), encoding="utf-8")
    page = (
        to_markdown(rows, {name: REPORTS[name].link for name in names})
        + FOLLOWED
        + "".join(f"| {name} | {fix.text} | {row.verdict} {row.reason} |\n" for name, fix, row in followed)
    )
    for name, _, row in followed:
        print(f"as printed {row.verdict:18} {name}: {row.reason[:160]}", flush=True)
    if chosen.markdown:
        packages = ("torch", "torchvision", "onnx", "onnxscript", "onnxruntime")
        versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
        chosen.markdown.write_text(HEAD.format(count=len(names), versions=versions) + page, encoding="utf-8")
    unexpected = [row for row in rows if row.exporter == "opbridge" and row.verdict != expected_verdict(row.name)]
    for row in unexpected:
        print(f"not as expected: {row.name}: {row.verdict}, expected {expected_verdict(row.name)}", file=sys.stderr)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
