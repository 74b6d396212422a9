"""Real models through the export, each in a process of its own, proved at sizes other than the example's.

    python benchmarks/models.py [NAME ...] [--timeout 900] [--json FILE]

The models are those of model_zoo.py: torchvision, timm and transformers, with random weights; nothing is downloaded. A
row holds if the bundle is verified; the table says at how many sets of sizes. The exit code is 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _table import finish, verdict


@dataclasses.dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        model: Its name in model_zoo.py.
        verified: Whether the engine gives what PyTorch gives.
        cases: At how many sets of sizes that was tried.
        seconds: Of the export with its verification.
        reason: Why not, in one line.
    """

    model: str
    verified: bool
    cases: int
    seconds: float
    reason: str = ""

    @property
    def holds(self) -> bool:
        return self.verified


def prove(name: str) -> Row:
    """Export one model in this process, and verify it."""
    import torch
    from model_zoo import MODELS

    import opbridge

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    example = MODELS[name]()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = opbridge.export(
                example.model,
                example.args,
                example.kwargs,
                path=Path(folder) / "bundle",
                dynamic_shapes=example.dynamic_shapes,
            )
        except opbridge.OpbridgeError as error:
            return Row(name, False, 0, time.perf_counter() - start, error.message.splitlines()[0])
        found: Any = bundle.verification
        return Row(name, bundle.verified, len(found["cases"]), time.perf_counter() - start, _reason(found))


def _reason(verification: Any) -> str:
    failed = [case["error"] for case in verification["cases"] if case["error"]]
    sound = ("equal", "within budget", "decision", "random")
    wrong = [
        f"{c['output']} {c['status']}: {c['detail']}" for c in verification["comparisons"] if c["status"] not in sound
    ]
    return (failed + wrong + [""])[0]


def in_child(name: str, timeout: float) -> Row:
    """:func:`prove` in a process of its own: a crash or a hang is a result."""
    command = [sys.executable, __file__, "--child", name]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Row(name, False, 0, timeout, f"took more than {timeout:.0f} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Row(name, False, 0, time.perf_counter() - start, lines[-1])
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the models that are asked for, by default all."""
    from model_zoo import MODELS

    parser = argparse.ArgumentParser(description="Real models, exported and proved.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one model")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(dataclasses.asdict(prove(chosen.child))))
        return 0
    unknown = [name for name in chosen.names if name not in MODELS]
    if unknown:
        parser.error(f"there is no model {unknown[0]!r}; there are: {', '.join(MODELS)}")
    rows = []
    for name in chosen.names or MODELS:
        rows.append(in_child(name, chosen.timeout))
        print(f"{name}: {'verified' if rows[-1].verified else rows[-1].reason}", file=sys.stderr, flush=True)
    cells = [
        ("model", [row.model for row in rows]),
        ("sets of sizes", [str(row.cases) for row in rows]),
        ("seconds", [f"{row.seconds:.0f}" for row in rows]),
        ("verified", [verdict(row) for row in rows]),
        ("reason", [row.reason for row in rows]),
    ]
    packages = ["torch", "torchvision", "timm", "transformers", "onnxruntime"]
    note = f"{sum(row.holds for row in rows)} of {len(rows)} models are verified."
    return finish(rows, cells, packages=packages, runs=1, json_file=chosen.json, note=note)


if __name__ == "__main__":
    sys.exit(main())
