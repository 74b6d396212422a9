"""One kernel in every engine that runs here, beside the engine's own operator of the same arithmetic, in one run.

    python benchmarks/engines.py [--engine NAME ...] [--runs 21] [--json FILE]

Each number with the target it must hold; the exit code is 1 if one does not:

* node: what a node of one's own takes more than a native one, in a chain of 50, on 16 elements. The target is for
  engines with a C++ adapter; where Python calls the kernel, there is none.
* large: its time on a million elements over the native node's; for comparison.
* deform_conv2d: torchvision's time on the CPU over the engine's, the geometric mean over the deformable layers of a
  ResNet-50 (stages 3 to 5, an image of 800 x 1344), with a mask, equal threads: all for engines that compute an
  operator in several, one for the others. Each layer is a row, for comparison. The target is for ONNX Runtime and
  OpenVINO. The reference evaluator is left out: onnx's own DeformConv is a loop in Python over every place, and did not
  finish 512 channels of 4 x 6 in five minutes.
* build: seconds in which a kernel that nobody has compiled before is built for all engines together, their adapters
  being in the cache.

The sides take turns, as in benchmarks/kernels.py, which says what noise there is.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from _table import finish, verdict
from kernels import KERNELS, add, compared, in_turns
from torch import Tensor

import opbridge
from opbridge import engines
from opbridge.engines.base import Engine
from opbridge.errors import OpbridgeError
from opbridge.kernels.declared import KernelSpec
from opbridge.ladder.build import build

NODE_MICROSECONDS, BUILD_SECONDS = 20.0, 5.0
DEFORM_GAINS = {"onnxruntime": 4.0, "openvino": 4.0}
IN_ONE_THREAD = ("executorch", "tvm")
SMALL, LARGE, CHAIN = 16, 1_000_000, 50
# Channels, height and width of the input, stride; all 3 x 3.
LAYERS = (
    *((128, 200, 336, 2), (128, 100, 168, 1)),
    *((256, 100, 168, 2), (256, 50, 84, 1)),
    *((512, 50, 84, 2), (512, 25, 42, 1)),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured number; a gain holds where it is at least its target, all else where it is at most that."""

    what: str
    engine: str
    ours: float
    native: float | None
    unit: str
    value: float
    of: str
    target: float | None
    is_gain: bool = False

    @property
    def holds(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.is_gain else self.value <= self.target


class Chain(torch.nn.Module):
    """So many additions in a row."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], length: int) -> None:
        super().__init__()
        self.function, self.length = function, length

    def forward(self, x: Tensor, b: Tensor) -> Tensor:
        for _ in range(self.length):
            x = self.function(x, b)
        return x


class Deformable(torch.nn.Module):
    """A deformable convolution of 3 x 3 with a mask."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(channels, channels, 3, 3) / channels**0.5)
        self.stride = stride

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        from torchvision.ops import deform_conv2d

        return deform_conv2d(x, offset, self.weight, stride=self.stride, padding=1, mask=mask)


def prepared(
    engine: Engine, module: torch.nn.Module, inputs: Sequence[Tensor], threads: int, folder: Path
) -> Callable[[], object]:
    """A run of the module on the engine, which has given what PyTorch gives."""
    bundle = opbridge.export(module, tuple(inputs), path=folder, engines=[engine.name], verify=False, overwrite=True)
    session = opbridge.load(bundle.path, engine=engine.name, threads=threads)
    arrays = [tensor.numpy() for tensor in inputs]
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(session(*arrays)[0]), module(*inputs), rtol=1e-3, atol=1e-3)
    return lambda: session(*arrays)


def measure_chain(engine: Engine, length: int, count: int, runs: int, folder: Path) -> list[list[float]]:
    inputs = (torch.randn(count), torch.randn(count) / length)
    sides = [
        prepared(engine, Chain(function, length), inputs, 1, folder / f"{name}{count}")
        for name, function in (("ours", add), ("native", torch.add))
    ]
    return in_turns(sides, runs)


def measure_operator(engine: Engine, runs: int, folder: Path) -> Iterator[Row]:
    times = measure_chain(engine, CHAIN, SMALL, runs, folder)
    ours, native = (1e6 * statistics.median(side) / CHAIN for side in times)
    more = 1e6 * compared(times, lambda a, b: a - b) / CHAIN
    target = NODE_MICROSECONDS if engine.kernel_adapter is not None else None
    yield Row("node", engine.name, ours, native, "us", more, "us more", target)
    times = measure_chain(engine, 1, LARGE, runs, folder)
    ours, native = (1e3 * statistics.median(side) for side in times)
    yield Row("large", engine.name, ours, native, "ms", compared(times, lambda a, b: a / b), "x", None)


def measure_deform(engine: Engine, runs: int, folder: Path) -> Iterator[Row]:
    threads = 1 if engine.name in IN_ONE_THREAD else os.cpu_count() or 1
    torch.set_num_threads(threads)
    gains = []
    for channels, height, width, stride in LAYERS:
        rows, columns = (height - 1) // stride + 1, (width - 1) // stride + 1
        inputs = (
            torch.randn(1, channels, height, width),
            torch.randn(1, 18, rows, columns),
            torch.rand(1, 9, rows, columns),
        )
        module = Deformable(channels, stride).eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        run = prepared(engine, module, inputs, threads, folder / f"deform{channels}{stride}")
        with torch.no_grad():
            times = in_turns([run, lambda module=module, inputs=inputs: module(*inputs)], max(3, runs // 5))  # type: ignore[misc]
        ours, native = (1e3 * statistics.median(side) for side in times)
        gains.append(compared(times, lambda a, b: b / a))
        name = f"{engine.name}, {channels} x {height} x {width} / {stride}"
        yield Row("layer", name, ours, native, "ms", gains[-1], "x quicker", None, True)
    mean = statistics.geometric_mean(gains)
    target = DEFORM_GAINS.get(engine.name)
    yield Row("deform_conv2d", engine.name, mean, None, "x", mean, "x quicker", target, True)


def measure_build(chosen: Sequence[Engine]) -> Row:
    """The kernels of benchmarks/kernels.h under a new name, as source that no compiler has seen."""
    with tempfile.TemporaryDirectory() as temporary:
        seconds = []
        for number in range(2):
            source = Path(temporary) / f"kernel{number}.h"
            source.write_text(f"// {number} {time.time_ns()}\n{KERNELS.read_text()}")
            spec = KernelSpec("benchmark::add", source, False, str(source))
            start = time.perf_counter()
            for engine in chosen:
                build([spec], engine)
            seconds.append(time.perf_counter() - start)
    # In the first one the adapters may have been compiled, too.
    return Row("build", "all", seconds[1], None, "s", seconds[1], "s", BUILD_SECONDS)


def measure(chosen: Sequence[Engine], runs: int, folder: Path) -> list[Row]:
    taking = [engine for engine in chosen if engine.takes_kernels]
    rows = [row for engine in taking for row in measure_operator(engine, runs, folder)]
    convolving = [engine for engine in chosen if engine.name != "reference"]
    rows += [row for engine in convolving for row in measure_deform(engine, runs, folder)]
    return [*rows, measure_build(taking)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs="+", metavar="NAME", help="default: all that are installed")
    parser.add_argument("--runs", type=int, default=21, help="batches of each side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    arguments = parser.parse_args()
    try:
        chosen = [engines.get(name) for name in arguments.engine or engines.names()]
    except OpbridgeError as error:
        parser.error(str(error))
    chosen = [engine for engine in chosen if engine.is_installed() and engine.not_run is None]
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(chosen, arguments.runs, Path(folder))
    cells = [
        ("what", [row.what for row in rows]),
        ("engine", [row.engine for row in rows]),
        ("ours", [f"{row.ours:.3g} {row.unit}" for row in rows]),
        ("other", ["" if row.native is None else f"{row.native:.3g} {row.unit}" for row in rows]),
        ("value", [f"{row.value:.3g} {row.of}" for row in rows]),
        ("target", ["" if row.target is None else f"{'≥' if row.is_gain else '≤'} {row.target:g}" for row in rows]),
        ("holds", [verdict(row) for row in rows]),
    ]
    packages = sorted({engine.package for engine in chosen} | {"torch", "torchvision"})
    return finish(rows, cells, packages=packages, runs=arguments.runs, json_file=arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
