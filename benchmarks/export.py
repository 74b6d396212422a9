"""What opbridge costs beside ``torch.onnx.export``: ratios, side by side in one run.

    python benchmarks/export.py [--runs 3] [--models resnet50,vit_b_16] [--skip-memory] [--json FILE]

Four numbers, each with the target it must hold; the exit code is 1 if one does not:

* export: ``opbridge.export(verify=False)`` over ``torch.onnx.export(dynamo=True)``, both writing their files.
* diagnose: ``opbridge.diagnose`` over the same.
* verify: how long the verification takes beyond the runs of PyTorch and of the engine that it consists of (from its
  beginning, told by ``progress``, to the end of ``export``: a difference of two exports would measure the noise).
* memory: the peak of a process that exports a model of 1 GB, over the peak of one that does so with torch.onnx.

A run is one export in a process in which each side has been run once before, so torch's caches are warm for both. The
sides take turns (A B C, then C B A), and the median of each counts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _table import finish, verdict
from torch import nn

import opbridge

EXPORT_RATIO, DIAGNOSE_RATIO, MEMORY_RATIO = 1.25, 0.75, 1.1
VERIFY_SECONDS, VERIFY_SHARE = 5.0, 0.2


def small_cnn() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), (
        torch.randn(1, 3, 32, 32),
    )


def transformer_encoder() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), (torch.randn(2, 32, 128),)


def vision(name: str) -> Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    def make() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        import torchvision

        return torchvision.models.get_model(name, weights=None), (torch.randn(1, 3, 224, 224),)

    return make


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "small_cnn": small_cnn,
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "resnet50": vision("resnet50"),
    "transformer_encoder": transformer_encoder,
    "vit_b_16": vision("vit_b_16"),
}


def one_gigabyte() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """250 million float32 parameters in 15 layers."""
    return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(15))), (torch.randn(1, 4096),)


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured ratio. ``measured`` and ``beside`` are in ``unit``."""

    model: str
    what: str
    measured: float
    beside: float
    value: float
    target: float
    unit: str = "s"

    @property
    def holds(self) -> bool:
        return self.value <= self.target


@contextlib.contextmanager
def quiet() -> Any:
    """Without the progress lines and warnings of torch.onnx."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def by_torch(model: nn.Module, args: tuple[Any, ...], folder: Path) -> None:
    torch.onnx.export(model, args, folder / "torch.onnx", dynamo=True, verbose=False)


def by_opbridge(model: nn.Module, args: tuple[Any, ...], folder: Path) -> None:
    opbridge.export(model, args, path=folder / "bundle", verify=False, overwrite=True)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    with quiet():
        work()
    return time.perf_counter() - start


def in_turns(sides: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The median seconds of each side, after one warm-up of each."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        seconds(work)
    for number in range(runs):
        for name in sides if number % 2 == 0 else reversed(sides):
            times[name].append(seconds(sides[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(name: str, runs: int) -> list[Row]:
    """The three ratios of time of one model."""
    model, args = MODELS[name]()
    model.eval()
    contained: list[float] = []
    beyond: list[float] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def verified() -> None:
            begun: dict[str, float] = {}
            note = lambda stage: begun.setdefault(stage, time.perf_counter())  # noqa: E731
            bundle = opbridge.export(model, args, path=folder / "bundle", overwrite=True, progress=note)
            taken = time.perf_counter() - begun["verifying"]
            if not bundle.verified:
                raise SystemExit(f"{name}: the verification failed: {bundle.verification}")
            contained.append(bundle.verification["seconds"]["runs"])
            beyond.append(taken - contained[-1])

        medians = in_turns(
            {
                "torch": lambda: by_torch(model, args, folder),
                "export": lambda: by_opbridge(model, args, folder),
                "diagnose": lambda: opbridge.diagnose(model, args),
                "verified": verified,
            },
            runs,
        )
    runs_seconds, more = statistics.median(contained[1:]), statistics.median(beyond[1:])
    return [
        Row(name, kind, medians[kind], medians["torch"], medians[kind] / medians["torch"], target)
        for kind, target in (("export", EXPORT_RATIO), ("diagnose", DIAGNOSE_RATIO))
    ] + [Row(name, "verify", more, runs_seconds, more, VERIFY_SECONDS + VERIFY_SHARE * runs_seconds)]


def peak_of_child(side: str) -> float:
    """The peak memory, in MB, of a new process that exports the large model."""
    found = subprocess.run([sys.executable, __file__, "--peak-of", side], capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(f"The export by {side} failed:\n{found.stderr[-2000:]}")
    return float(found.stdout)


def peak_of_this_process(side: str) -> float:
    model, args = one_gigabyte()
    with tempfile.TemporaryDirectory() as folder, quiet():
        {"torch": by_torch, "opbridge": by_opbridge}[side](model.eval(), args, Path(folder))
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def measure_memory(runs: int) -> Row:
    peaks: dict[str, list[float]] = {"torch": [], "opbridge": []}
    for _ in range(runs):
        for side, found in peaks.items():
            found.append(peak_of_child(side))
    ours, theirs = statistics.median(peaks["opbridge"]), statistics.median(peaks["torch"])
    return Row("1 GB of weights", "memory", ours, theirs, ours / theirs, MEMORY_RATIO, "MB")


def columns(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    def number(row: Row, value: float) -> str:
        return f"{value:.{0 if row.unit == 'MB' else 2}f} {row.unit}"

    suffix = [" s" if row.what == "verify" else "x" for row in rows]
    return [
        ("model", [row.model for row in rows]),
        ("what", [row.what for row in rows]),
        ("measured", [number(row, row.measured) for row in rows]),
        ("beside", [number(row, row.beside) for row in rows]),
        ("value", [f"{row.value:.2f}{unit}" for row, unit in zip(rows, suffix, strict=True)]),
        ("target", [f"{row.target:.2f}{unit}" for row, unit in zip(rows, suffix, strict=True)]),
        ("holds", [verdict(row) for row in rows]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="measured runs of each side (default 3)")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--skip-memory", action="store_true", help="leave out the export of 1 GB")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    parser.add_argument("--peak-of", choices=("torch", "opbridge"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print(peak_of_this_process(options.peak_of))
        return 0
    chosen = [name for name in options.models.split(",") if name]
    if unknown := sorted(set(chosen) - set(MODELS)):
        parser.error(f"unknown model {unknown[0]!r}; the models are {', '.join(MODELS)}")
    torch.manual_seed(0)
    rows = [row for name in chosen for row in measure(name, options.runs)]
    if not options.skip_memory:
        rows.append(measure_memory(options.runs))
    return finish(
        rows,
        columns(rows),
        packages=("torch", "torchvision", "onnx", "onnxruntime"),
        runs=options.runs,
        json_file=options.json,
        note="beside: torch.onnx.export; for verify, the runs of PyTorch and of the engine that it contains",
    )


if __name__ == "__main__":
    raise SystemExit(main())
