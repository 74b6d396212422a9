"""What the bridge costs: a model with 200 autograd.Functions, exported as nodes of their symbolics and inlined.

Run it with ``python benchmarks/legacy.py``; ``--json`` prints data. Both exports are of one model in one process, by
turns; what counts is the median of the ratios of neighbours, since the machine may be faster or slower in the next
round. The limit is 1.3 times the time of the inlined model.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from opbridge import legacy

LIMIT = 1.3


class Scale(torch.autograd.Function):
    """The hardest one: its forward is a single operator, so inlining it could not be cheaper."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, limit: float) -> torch.Tensor:
        return x * scale

    @staticmethod
    def symbolic(g: Any, x: Any, scale: float, limit: float) -> Any:
        return g.op("bench::Scale", x, scale_f=scale, limit_f=limit)


class Model(torch.nn.Module):
    """Layers with such a Function behind each, no two with the same arguments."""

    def __init__(self, count: int, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(count))
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = self.call(layer(x), 1.0 + number / 1000, 6.0)
        return x


def seconds_of(export: Callable[[], Any]) -> float:
    """The processor time of one export, which what else the machine does changes little."""
    gc.collect()  # Or one export pays for what the one before it left behind.
    start = time.process_time()
    export()
    return time.process_time() - start


def inlined(x: torch.Tensor, scale: float, limit: float) -> torch.Tensor:
    """What the Function's forward computes, as a plain function."""
    return x * scale


def measure(count: int, rounds: int) -> dict[str, float]:
    """The median processor time of each export, in seconds, and the median ratio of neighbours."""
    inputs = (torch.randn(2, 16),)
    models = {"bridged": Model(count, Scale.apply).eval(), "inlined": Model(count, inlined).eval()}
    times: dict[str, list[float]] = {name: [] for name in models}
    with legacy.enable():
        for model in (Model(1, Scale.apply).eval(), Model(1, inlined).eval()):
            torch.onnx.export(model, inputs)
        for _ in range(rounds):
            for name, model in models.items():
                times[name].append(seconds_of(functools.partial(torch.onnx.export, model, inputs)))
    ratios = [bridged / plain for bridged, plain in zip(times["bridged"], times["inlined"], strict=True)]
    return {**{name: statistics.median(found) for name, found in times.items()}, "ratio": statistics.median(ratios)}


def main() -> int:
    """Measure, print, and say by the exit code whether the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many Functions (200)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each model is exported (7)")
    parser.add_argument("--json", action="store_true", help="print data")
    arguments = parser.parse_args()
    measured = measure(arguments.count, arguments.rounds)
    if arguments.json:
        print(json.dumps({**measured, "count": arguments.count, "limit": LIMIT}))
    else:
        print(f"{arguments.count} Functions bridged: {measured['bridged']:.2f} s")
        print(f"{arguments.count} Functions inlined: {measured['inlined']:.2f} s")
        print(f"ratio: {measured['ratio']:.2f} (at most {LIMIT})")
    return int(measured["ratio"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
