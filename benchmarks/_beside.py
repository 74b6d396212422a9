"""opbridge's model of a network and torch.onnx's in an engine: their nodes, their sizes, and run times in turns."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime

__all__ = ["file_size", "geometric_mean", "in_turns", "interval", "nodes_in", "runner"]


def runner(path: Path, feeds: Sequence[np.ndarray], engine: str = "onnxruntime") -> Callable[[], object]:
    """One run of a model on one thread; the arrays are its inputs in order.

    Args:
        path: The model.
        feeds: The arrays.
        engine: ``"onnxruntime"`` or ``"openvino"``.
    """
    return _openvino(path, feeds) if engine == "openvino" else _onnxruntime(path, feeds)


def _openvino(path: Path, feeds: Sequence[np.ndarray]) -> Callable[[], object]:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.compile_model(path, "CPU", settings).create_infer_request()
    for index, array in enumerate(feeds):
        request.set_input_tensor(index, openvino.Tensor(array))
    return request.infer


def _onnxruntime(path: Path, feeds: Sequence[np.ndarray]) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in zip(names, feeds, strict=True)}
    outputs = [item.name for item in session.get_outputs()]
    return lambda: session.run_with_ort_values(outputs, values)


def in_turns(sides: Mapping[str, Callable[[], object]], runs: int, least: float = 0.0) -> dict[str, list[float]]:
    """Seconds of each run of each side, after one that does not count. The side that begins changes from turn to turn.

    It is the processor's time, because each side runs on one thread, and other work on the machine hardly changes it.

    Args:
        sides: What is measured.
        runs: The number of runs of each side.
        least: The seconds that all runs take together at least.
    """
    for work in sides.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    start = time.perf_counter()
    while len(times[order[0]]) < runs or time.perf_counter() - start < least:
        order.append(order.pop(0))
        for name in order:
            before = time.process_time()
            sides[name]()
            times[name].append(time.process_time() - before)
    return times


def nodes_in(path: Path) -> int:
    """The number of nodes, those of functions and inner graphs too."""
    model = ir.load(path)
    scopes = [model.graph, *model.functions.values()]
    return sum(1 for scope in scopes for _ in ir.traversal.RecursiveGraphIterator(scope))


def file_size(path: Path) -> int:
    """Bytes of a model and of the weights beside it."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def geometric_mean(ratios: Sequence[float]) -> float:
    return statistics.geometric_mean(ratios)


def interval(ratios: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """The 95% confidence interval of the geometric mean over the models, by the bootstrap."""
    generator = random.Random(0)
    logs = [math.log(ratio) for ratio in ratios]
    means = sorted(statistics.fmean(generator.choices(logs, k=len(logs))) for _ in range(draws))
    return math.exp(means[int(0.025 * draws)]), math.exp(means[int(0.975 * draws) - 1])
