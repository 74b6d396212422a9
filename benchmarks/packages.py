"""Modules of public packages, exported by opbridge and by torch.onnx.export, and compared with eager PyTorch.

A third column says which of them ``torch.export.export`` alone captures rightly.

    python benchmarks/packages.py [NAME ...] --rows build/packages.jsonl
    python benchmarks/packages.py --rows build/packages.jsonl --fixes
    python benchmarks/packages.py --rows build/packages.jsonl --assume
    python benchmarks/packages.py --rows build/packages.jsonl --again --page docs/packages.md

The modules are those of packages_*.py, chosen by what people deploy, with random weights and small configurations;
nothing is downloaded while it runs. Names are those of --list, or beginnings of them. tests/support/side_by_side.py
exports and compares each module in a process of its own. Rows are appended to a file as they come, so that a
second call goes on where the first ended; the last row of a module counts. The exit code is 1 if a model that opbridge
verified is wrong.

The packages need an environment of their own: ``pip install -e ".[export,vision,numba]"``, and then
``pip install --no-deps -r benchmarks/packages.txt``, because some of them ask for other versions of torch or NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

import packages_audio  # noqa: E402
import packages_dense  # noqa: E402
import packages_fixes  # noqa: E402
import packages_graphs  # noqa: E402
import packages_numbers  # noqa: E402
import packages_text  # noqa: E402
import packages_vision  # noqa: E402
from packages_example import Factory  # noqa: E402
from side_by_side import EXPORTERS, Exporter, Server, Situation  # noqa: E402

OFFLINE = {"HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}

ASSUMED = ", assumed"
"""Follows the name of a module in the rows of an export with ``assume=True``."""

MODULES: dict[str, Factory] = {
    **packages_vision.MODULES,
    **packages_dense.MODULES,
    **packages_audio.MODULES,
    **packages_text.MODULES,
    **packages_graphs.MODULES,
    **packages_numbers.MODULES,
}


def situation(name: str) -> Situation:
    """The module of a name, with its inputs, as its printed fix says, or with assumptions; called in the child."""
    import torch

    # transformers would import benchmarks/kernels.py, because there is a package `kernels`.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE.resolve()]
    # PyPI's torchaudio may be built with another CUDA than PyPI's torch, and refuses to be imported then.
    cuda, torch.version.cuda = torch.version.cuda, None
    import torchaudio  # noqa: F401

    torch.version.cuda = cuda
    torch.manual_seed(0)
    if name.endswith(ASSUMED):
        return dataclasses.replace(MODULES[name.removesuffix(ASSUMED)](), options={"opbridge": {"assume": True}})
    module, as_printed, _ = name.partition(packages_fixes.AS_PRINTED)
    example = MODULES[module]()
    return packages_fixes.FIXES[module].applied(example) if as_printed else example


def commit() -> str:
    """The commit of the opbridge that is measured, with a + if it was changed since."""
    import opbridge

    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(opbridge.__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a file: {"row", "commit", "date"} each."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def pending(file: Path, names: Sequence[str], exporters: Sequence[Exporter], again: bool) -> list[tuple[str, Exporter]]:
    """What is to be measured: modules without a row, and with ``again`` those that were not right at another commit.

    Other rows do not depend on the commit.
    """
    here = commit()
    last = {(line["row"]["name"], line["row"]["exporter"]): line for line in read(file)}
    wanted: list[tuple[str, Exporter]] = []
    for exporter in exporters:
        for name in names:
            line = last.get((name, exporter))
            stale = line and exporter == "opbridge" and line["row"]["verdict"] != "right" and line["commit"] != here
            if line is None or (again and stale):
                wanted.append((name, exporter))
    return wanted


def measure(file: Path, wanted: Sequence[tuple[str, Exporter]], seconds: float) -> None:
    """Measure modules one after another, and append their rows to a file."""
    with Server(path=[HERE]) as server:
        for name, exporter in wanted:
            row = server.compare(f"packages:situation#{name}", exporter, name=name, seconds=seconds)
            line = {"row": row.to_dict(), "commit": commit(), "date": datetime.date.today().isoformat()}
            with file.open("a", encoding="utf-8") as rows:
                rows.write(json.dumps(line) + "\n")
            print(f"{name}, {exporter}: {row.verdict} {row.reason}"[:300], file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no row yet."""
    parser = argparse.ArgumentParser(description="Modules of public packages, exported and compared.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="modules, or beginnings of their names; by default all"
    )
    parser.add_argument("--exporter", choices=EXPORTERS, help="by default all")
    parser.add_argument("--seconds", type=float, default=300.0, help="for one export with its comparison")
    parser.add_argument("--rows", type=Path, default=Path("build/packages.jsonl"), help="the file of the rows")
    parser.add_argument("--again", action="store_true", help="measure what was not right at another commit again")
    parser.add_argument("--page", type=Path, help="write the table of all rows to this Markdown file")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--fixes", action="store_true", help="follow the printed fixes of modules that are refused")
    again.add_argument("--assume", action="store_true", help="export what was not right with assumptions")
    parser.add_argument("--list", action="store_true", help="list the modules")
    chosen = parser.parse_args(arguments)
    names = [name for name in MODULES if not chosen.names or name.startswith(tuple(chosen.names))]
    if chosen.list or not names:
        print("\n".join(names or MODULES))
        return 0 if names else 2
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    exporters = (chosen.exporter,) if chosen.exporter else EXPORTERS
    if chosen.fixes:
        names = [f"{name}{packages_fixes.AS_PRINTED}" for name in names if name in packages_fixes.FIXES]
        exporters = ("opbridge",)
    if chosen.assume:
        rows = [line["row"] for line in read(chosen.rows) if line["row"]["exporter"] == "opbridge"]
        right = {row["name"] for row in rows if row["verdict"] == "right"}
        names = [f"{name}{ASSUMED}" for name in names if name not in right]
        exporters = ("opbridge",)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(OFFLINE, YOLO_CONFIG_DIR=folder)
        measure(chosen.rows, pending(chosen.rows, names, exporters, chosen.again), chosen.seconds)
    last = {(line["row"]["name"], line["row"]["exporter"]): line for line in read(chosen.rows)}
    if chosen.page:
        import packages_page

        chosen.page.write_text(packages_page.page(list(last.values()), MODULES), encoding="utf-8")
    return int(any(line["row"]["verdict"] == "verified but wrong" for line in last.values()))


if __name__ == "__main__":
    sys.exit(main())
