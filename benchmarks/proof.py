"""What verification catches, what it wrongly suspects, and what it costs.

    python benchmarks/proof.py [faults] [sound] [models] [--only TEXT] [--runs 20] [--json FILE] [--markdown]

* faults: the planted faults of tests/support/planted_faults.py, each with the inputs that must show it. A row holds if
  opbridge.verify does not pass, and bisection names the planted node. A fault that is not deterministic is verified
  ``--runs`` times; the row holds if nine of ten find it, and the first that does calls it not deterministic.
* sound: the ill-conditioned models of tests/support/sound_models.py. A row holds if opbridge.verify passes. The sum
  of 1e8 terms takes some 3 GB.
* models: ResNet-50, ViT-B/16, a Swin and Faster R-CNN, with random weights, each in a process of its own: the time and
  the memory of verification, see proof_of_models.py for what is measured.

Beside opbridge stand torch.onnx.verification, with the thresholds at which torch.onnx.export(verify=True) warns, and
numpy.allclose(rtol=1e-3), both on the example inputs; and numpy.allclose on opbridge's own inputs, which tells the
merit of the inputs from that of the judgement. ``--markdown`` prints the tables of docs/verification.md. The exit code
is 1 if a row does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _table import finish, verdict
from proof_of_faults import Row, faults, markdown, sound_models, totals
from proof_of_models import MEMORY, MODELS, SECONDS, SHARE, ModelRow

PARTS = ("faults", "sound", "models")
PACKAGES = ("torch", "onnx", "onnxruntime", "numpy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for, by default all."""
    parser = argparse.ArgumentParser(description="What verification catches, and what it costs.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--runs", type=int, default=20, help="verifications of a fault that is not deterministic")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    chosen = parser.parse_args(arguments)
    parts = chosen.parts or list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for part, found in (("faults", faults(chosen.runs, chosen.only)), ("sound", sound_models(chosen.only))):
        for row in found if part in parts else ():
            print(f"{row.name}: {'holds' if row.holds else 'does not hold'}", file=sys.stderr, flush=True)
            rows.append(row)
    models = [_in_child(name) for name in MODELS if chosen.only in name] if "models" in parts else []
    if chosen.markdown:
        print("\n".join([*(markdown(rows) if rows else ()), *_model_lines(models)]))
        return 0 if all(row.holds for row in (*rows, *models)) else 1
    codes = [_show_faults(rows, chosen.json)] if rows else []
    codes += [_show_models(models, None if rows else chosen.json)] if models else []
    return max(codes, default=0)


def _show_faults(rows: Sequence[Row], json_file: Path | None) -> int:
    yes = {True: "reports", False: "passes"}
    cells: list[tuple[str, Sequence[str]]] = [
        ("what", [row.name for row in rows]),
        ("inputs", [row.mode for row in rows]),
        ("opbridge", [f"{row.caught:.0%}" for row in rows]),
        ("the node", [row.node for row in rows]),
        ("torch", [yes[row.torch_verification] for row in rows]),
        ("allclose", [yes[row.allclose] for row in rows]),
        ("allclose here", [yes[row.allclose_here] for row in rows]),
        ("held", [verdict(row) for row in rows]),
    ]
    note = "\n".join(["opbridge: share of the verifications that did not pass.", *totals(list(rows))])
    return finish(rows, cells, packages=PACKAGES, runs=1, json_file=json_file, note=note)


def _show_models(rows: Sequence[ModelRow], json_file: Path | None) -> int:
    cells: list[tuple[str, Sequence[str]]] = [
        ("model", [row.name for row in rows]),
        ("verdict", [row.verdict for row in rows]),
        ("runs, s", [f"{row.runs:.1f}" for row in rows]),
        ("overhead, s", [f"{row.overhead:.1f}" for row in rows]),
        ("allowed, s", [f"{SECONDS + SHARE * row.runs:.1f}" for row in rows]),
        ("processor, s", [f"{row.processor:.1f}" for row in rows]),
        ("bisection, MB", [f"{row.peak / 1e6:.0f}" for row in rows]),
        ("of the model", [f"{row.memory:.2f}" for row in rows]),
        ("allowed", [f"{MEMORY:.2f}" for _ in rows]),
        ("of the weights", [f"{row.of_weights:.2f}" for row in rows]),
        ("the node", ["named" if row.named else "not named" for row in rows]),
        ("held", [verdict(row) for row in rows]),
    ]
    return finish(rows, cells, packages=(*PACKAGES, "torchvision"), runs=1, json_file=json_file)


def _model_lines(rows: Sequence[ModelRow]) -> list[str]:
    if not rows:
        return []
    lines = [
        "| model | runs | overhead | allowed | processor | memory | of the model's | of the weights | node |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {row.name} | {row.runs:.1f} s | {row.overhead:.1f} s | {SECONDS + SHARE * row.runs:.1f} s "
        f"| {row.processor:.1f} s | {row.peak / 1e6:.0f} MB | {row.memory:.2f} | {row.of_weights:.2f} "
        f"| {'named' if row.named else 'not named'} |"
        for row in rows
    ]


def _in_child(name: str) -> ModelRow:
    """One model in a process of its own, whose memory is its own."""
    script = Path(__file__).with_name("proof_of_models.py")
    done = subprocess.run([sys.executable, str(script), name], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}: measured", file=sys.stderr, flush=True)
    return ModelRow(**found)


if __name__ == "__main__":
    sys.exit(main())
