"""Command lines that run in this process or in one of their own, on a small model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_node import FLOAT, make_model, save
from onnx import helper, numpy_helper

from opbridge.cli import main

__all__ = ["Ran", "opbridge", "slow_engine", "small_model"]


def small_model(path: Path, *, weights: int = 4) -> Path:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Sinh", ["a"], ["b"], name="sinh"),
        helper.make_node("Add", ["b", "w"], ["y"], name="add"),
    ]
    constant = numpy_helper.from_array(np.linspace(0, 1, weights, dtype=np.float32), "w")
    shape = ["n", weights]
    model = make_model(nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}, initializers=[constant])
    return save(model, path)


class Ran:
    """A command line that ran in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = main([*map(str, arguments)])
        self.out, self.err = capfd.readouterr()

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def opbridge(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A command line in a process of its own."""
    command = [sys.executable, "-m", "opbridge", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def slow_engine(place: Path, count: int = 1) -> int:
    """The process of the engine, once it has begun with its run of this number."""
    file = place / "slow"
    for _ in range(1200):
        if file.exists() and len(lines := file.read_text().split()) >= count:
            return int(lines[-1])
        time.sleep(0.05)
    raise AssertionError("the engine did not run")
