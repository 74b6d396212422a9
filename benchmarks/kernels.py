"""What a kernel costs beside native operators of the same arithmetic: side by side in one run.

    python benchmarks/kernels.py [--runs 41] [--json FILE]

Each number with the target it must hold; the exit code is 1 if one does not:

* node: what a node of one's own takes more than a native one, in a chain of 200 in ONNX Runtime, on 16 elements.
* large: its time on a million elements over the native node's.
* threads: the native node's gain from a second thread over its own, on a million elements.
* call: what a call takes more than a native operator's in PyTorch, on 16 elements.
* python: the time of a kernel that is written in Python over that of the one in C++, on a million elements.
* build: seconds from a new kernel's source to its first result in ONNX Runtime, the adapter being in the cache.

Rows without a target are for comparison: Gelu, whose native operator chooses among instruction sets when it runs,
compiled for any processor and for this one; a build with nothing cached.

The sides take turns (A B, then B A), in batches that are long enough for the clock. Times are medians (but see below),
and a difference is the median of those of neighbouring batches, so that a machine that becomes slower does so for both.

Noise: with other work on the machine single batches are off by half and more. On a million elements the place of the
memory decides some 5%, so both sides work on the same memory, and nine such places are pooled; two threads need two
free cores at the same time, so batches are of half a millisecond, and of those with two threads the quickest tenth
counts (the quickest hundredth is luck: it moved by 25% from run to run).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from _table import finish, verdict
from onnx import TensorProto, helper
from torch import Tensor

import opbridge
from opbridge.engines.onnxruntime import adapter_source
from opbridge.kernels.compiler import build
from opbridge.kernels.torch_adapter import build_adapter

NODE_MICROSECONDS, LARGE_RATIO, THREADS_RATIO, CALL_MICROSECONDS, BUILD_SECONDS = 5.0, 1.05, 1.1, 5.0, 3.0
PYTHON_RATIO = 1.1
SMALL, LARGE, CHAIN, SETUPS = 16, 1_000_000, 200, 9
KERNELS = Path(__file__).with_name("kernels.h")
# The native operator, the kernel of the same arithmetic, and how many inputs they have.
PAIRS = {"Add": ("add", 2), "HardSigmoid": ("hard_sigmoid", 1), "Gelu": ("gelu", 1)}


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured number. ``kernel`` and ``native`` are in ``unit``, ``value`` and ``target`` in ``of``."""

    what: str
    operator: str
    kernel: float
    native: float | None
    unit: str
    value: float
    of: str
    target: float | None

    @property
    def holds(self) -> bool:
        return self.target is None or self.value <= self.target


def in_turns(
    sides: Sequence[Callable[[], object]], runs: int, *, batch_seconds: float = 0.005, rest: float = 0.0
) -> list[list[float]]:
    """The seconds that each side takes once, in each of ``runs`` batches.

    Args:
        sides: What to run.
        runs: How many batches of each.
        batch_seconds: How long a batch is.
        rest: Seconds of sleep before each batch, and a run that does not count after it: the threads of a side go on
            looking for work for a while, on the cores of the next one, and one that sleeps must be woken.
    """
    repeats = []
    for work in sides:
        work()
        start = time.perf_counter()
        work()
        repeats.append(max(1, round(batch_seconds / (time.perf_counter() - start))))
    times: list[list[float]] = [[] for _ in sides]
    gc.disable()
    for number in range(runs):
        for side in range(len(sides))[:: 1 if number % 2 == 0 else -1]:
            work, count = sides[side], range(repeats[side])
            if rest:
                time.sleep(rest)
                work()
            start = time.perf_counter()
            for _ in count:
                work()
            times[side].append((time.perf_counter() - start) / len(count))
    gc.enable()
    return times


def pooled(make: Callable[[], Sequence[Callable[[], object]]], runs: int) -> list[list[float]]:
    """The batches of several sessions and pieces of memory: where those lie decides 5% on large tensors."""
    found = [in_turns(make(), max(12, runs), batch_seconds=0.0005, rest=0.002) for _ in range(SETUPS)]
    return [[seconds for times in found for seconds in times[side]] for side in range(len(found[0]))]


def compared(times: Sequence[Sequence[float]], function: Callable[..., float]) -> float:
    return statistics.median(function(*batch) for batch in zip(*times, strict=True))


def model_of(operator: str, domain: str, inputs: int, length: int) -> bytes:
    """A chain: the first input is what the node before gave, the second the same for all."""
    nodes = []
    for number in range(length):
        names = ["x" if number == 0 else f"y{number - 1}", "b"][:inputs]
        nodes.append(helper.make_node(operator, names, [f"y{number}"], domain=domain))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "b")[:inputs]]
    result = helper.make_tensor_value_info(f"y{length - 1}", TensorProto.FLOAT, ["n"])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("benchmark", 1)]
    graph = helper.make_graph(nodes, "chain", values, [result])
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def values_of(count: int, inputs: int) -> list[onnxruntime.OrtValue]:
    """The inputs, and memory for the output: the same for both sides, and aligned as it is inside a model."""
    random = np.random.default_rng(0)
    values = []
    for _ in range(inputs + 1):
        memory = np.empty(4 * count + 64, np.uint8)
        start = -memory.ctypes.data % 64
        array = memory[start : start + 4 * count].view(np.float32)
        array[:] = random.standard_normal(count, np.float32)
        values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
    return values


def prepared(
    model: bytes, threads: int, values: Sequence[onnxruntime.OrtValue], library: Path | None = None
) -> Callable[[], object]:
    """A run of the model on these values; it has been run once."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for argument, value in zip(session.get_inputs(), values, strict=False):
        binding.bind_ortvalue_input(argument.name, value)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, values[-1])
    session.run_with_iobinding(binding)
    return lambda: session.run_with_iobinding(binding)


def both(
    native: str, length: int, count: int, library: Path, threads: Sequence[int] = (1,)
) -> list[Callable[[], object]]:
    """Runs of the chain made of the kernel and of the native operator, which give the same; for each number of threads.

    All work on the same memory, since its place counts.
    """
    kernel, inputs = PAIRS[native]
    values = values_of(count, inputs)
    sides = []
    for number in threads:
        sides.append(prepared(model_of(kernel, "benchmark", inputs, length), number, values, library))
        found = values[-1].numpy().copy()
        sides.append(prepared(model_of(native, "", inputs, length), number, values))
        np.testing.assert_allclose(found, values[-1].numpy(), rtol=1e-4, atol=1e-5)
    return sides


def measure_node(native: str, runs: int, library: Path) -> Row:
    times = in_turns(both(native, CHAIN, SMALL, library), runs)
    ours, theirs = (1e6 * statistics.median(side) / CHAIN for side in times)
    more = 1e6 * compared(times, lambda a, b: a - b) / CHAIN
    return Row("node", native, ours, theirs, "us", more, "us more", NODE_MICROSECONDS)


def measure_large(native: str, runs: int, library: Path, name: str, target: float | None) -> list[Row]:
    """One thread and two of each side, all four in turns. One thread: medians. Two: the quickest tenth, see above."""
    times = pooled(lambda: both(native, 1, LARGE, library, (1, 2)), runs)
    middle, native_middle = (1e3 * statistics.median(side) for side in times[:2])
    ratio = compared(times[:2], lambda a, b: a / b)
    one, native_one, two, native_two = (statistics.quantiles(side, n=10)[0] for side in times)
    ours, theirs = one / two, native_one / native_two
    return [
        Row("large", name, middle, native_middle, "ms", ratio, "x", target),
        Row("threads", name, ours, theirs, "x", theirs / ours, "x", THREADS_RATIO),
    ]


@opbridge.operator("benchmark::add")
def add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


add.kernel("kernels.h")


@opbridge.operator("benchmark::python_add")
def python_add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


@python_add.kernel(dtypes=["float32"])
def python_add_kernel(a, b):
    return a + b


@opbridge.operator("benchmark::python_hard_sigmoid")
def python_hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


@python_hard_sigmoid.kernel(dtypes=["float32"])
def python_hard_sigmoid_kernel(x, alpha, beta):
    y = np.float32(alpha) * x + np.float32(beta)
    return min(max(y, np.float32(0)), np.float32(1))


def measure_python(runs: int, library: Path) -> list[Row]:
    """In ONNX Runtime, on one thread and the same memory; nothing where Numba is not installed."""
    if importlib.util.find_spec("numba") is None:
        return []
    operators = {"Add": python_add, "HardSigmoid": python_hard_sigmoid}
    headers = [operator._kernel.header for operator in operators.values()]
    in_python = build(headers, adapters=[adapter_source()])

    def sides(name: str) -> list[Callable[[], object]]:
        kernel, inputs = PAIRS[name]
        values = values_of(LARGE, inputs)
        found = []
        for operator, built in ((f"python_{kernel}", in_python), (kernel, library)):
            found.append(prepared(model_of(operator, "benchmark", inputs, 1), 1, values, built))
        return found

    rows = []
    for name in operators:
        times = pooled(lambda name=name: sides(name), runs)
        ours, theirs = (1e3 * statistics.median(side) for side in times)
        ratio = compared(times, lambda a, b: a / b)
        rows.append(Row("python", name, ours, theirs, "ms", ratio, "x", PYTHON_RATIO))
    return rows


def measure_calls(runs: int) -> list[Row]:
    """What a user writes, and the operator below it, over the native one called in the same way."""
    a, b = torch.randn(SMALL), torch.randn(SMALL)
    pairs = {
        "add(a, b)": (lambda: add(a, b), lambda: torch.add(a, b)),
        "torch.ops": (lambda: torch.ops.benchmark.add(a, b), lambda: torch.ops.aten.add(a, b)),
    }
    rows = []
    with torch.no_grad():
        assert torch.equal(add(a, b), a + b)
        for name, works in pairs.items():
            times = in_turns(works, runs)
            ours, theirs = (1e6 * statistics.median(side) for side in times)
            more = 1e6 * compared(times, lambda a, b: a - b)
            rows.append(Row("call", name, ours, theirs, "us", more, "us more", CALL_MICROSECONDS))
    return rows


def first_result(folder: Path, number: int) -> float:
    """Seconds from the source of a kernel that nobody has compiled before to its first result."""
    source = folder / f"kernel{number}.h"
    source.write_text(f"// {number}\n{KERNELS.read_text()}")
    model, values = model_of("add", "benchmark", 2, 1), values_of(SMALL, 2)
    start = time.perf_counter()
    prepared(model, 1, values, build([source], adapters=[adapter_source()]))
    return time.perf_counter() - start


def measure_build() -> list[Row]:
    earlier = os.environ.get("OPBRIDGE_CACHE")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["OPBRIDGE_CACHE"] = str(Path(temporary) / "cache")
        try:
            nothing = first_result(Path(temporary), 0)
            times = [first_result(Path(temporary), number) for number in range(1, 4)]
            start = time.perf_counter()
            build_adapter()
            for_torch = time.perf_counter() - start
        finally:
            del os.environ["OPBRIDGE_CACHE"]
            if earlier is not None:
                os.environ["OPBRIDGE_CACHE"] = earlier
    found = statistics.median(times)
    return [
        Row("build", "new kernel", found, None, "s", found, "s", BUILD_SECONDS),
        Row("build", "nothing cached", nothing, None, "s", nothing, "s", None),
        Row("build", "PyTorch's adapter", for_torch, None, "s", for_torch, "s", None),
    ]


def measure(runs: int) -> list[Row]:
    portable = build([KERNELS], adapters=[adapter_source()])
    native = build([KERNELS], adapters=[adapter_source()], native=True)
    rows = [measure_node(operator, runs, portable) for operator in PAIRS]
    for operator in ("Add", "HardSigmoid"):
        rows += measure_large(operator, runs, portable, operator, LARGE_RATIO)
    rows += measure_large("Gelu", runs, portable, "Gelu, any processor", None)
    rows += measure_large("Gelu", runs, native, "Gelu, this processor", None)
    return [*rows, *measure_python(runs, portable), *measure_calls(runs), *measure_build()]


def columns(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    def number(value: float | None, unit: str) -> str:
        return "" if value is None else f"{value:.2f} {unit}"

    return [
        ("what", [row.what for row in rows]),
        ("operator", [row.operator for row in rows]),
        ("kernel", [number(row.kernel, row.unit) for row in rows]),
        ("native", [number(row.native, row.unit) for row in rows]),
        ("value", [number(row.value, row.of) for row in rows]),
        ("target", [number(row.target, row.of) for row in rows]),
        ("holds", ["" if row.target is None else verdict(row) for row in rows]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=41, help="batches of each side (default 41)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.runs)
    packages = ("torch", "onnxruntime")
    return finish(rows, columns(rows), packages=packages, runs=options.runs, json_file=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
