"""The program that runs one task of a sweep: ``python -m opbridge.sweep.task``.

It answers one request as an engine's child process does (:mod:`opbridge.engines.process.child`), with the same limits
on time and memory. :func:`opbridge.sweep.process.run_task` is the parent.
"""

from __future__ import annotations

import copy
import importlib.metadata
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opbridge.atomic import TemporaryFolder
from opbridge.capture.entry import Entry
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.process.child import serve
from opbridge.engines.process.host import is_lack_of_memory
from opbridge.engines.process.measuring import peak_memory
from opbridge.errors import OpbridgeError, causes, described_error
from opbridge.proof.verify.verification import PASSING
from opbridge.sweep.causes import general, of_error, of_verification
from opbridge.sweep.exported import EXPORTERS, Exported, median_run
from opbridge.sweep.zoo import Zoo, open_zoo
from opbridge.torch_graph.freeze import frozen
from opbridge.torch_graph.state import keeping_state

__all__ = ["main"]

_LONGEST_ERROR = 400


def main() -> int:
    """Answer requests until the parent closes the pipe."""
    return serve(_answer)


def _answer(message: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    torch.set_num_threads(1)
    task = _Task(message)
    try:
        task.run()
    except Exception as error:
        _raise_lack_of_memory(error)
        traceback.print_exc()
        status, why = of_error(error)
        if task.stage in ("building the model", "running eager PyTorch"):
            status, why = "eager", (general(described_error(error.__cause__ or error)),)
        task.row |= {"status": status, "causes": list(why), "error": _one_line(error), "stage": task.stage}
    return {"row": {**task.row, "memory": peak_memory()}}, {}


class _Task:
    """One model with one exporter and one engine.

    Attributes:
        row: The fields of the row that are known so far.
        stage: What is being done.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self.row: dict[str, Any] = {"seconds": {}}
        self.stage = ""

    def begin(self, stage: str) -> None:
        """Note the stage where the parent finds it if this process ends."""
        self.stage = stage
        Path(self._request["stage_file"]).write_text(stage, encoding="utf-8")

    def run(self) -> None:
        """Build the model, run it in eager PyTorch, export it, verify it and measure it."""
        zoo = open_zoo(self._request["place"])
        self.row["versions"] = _versions(self._request["packages"])
        if zoo.run is not None:
            self.begin("running")
            self.row |= zoo.run(self._request["model"], self._request["exporter"], self._request["engine"])
            return
        model = self._built(zoo)
        if not isinstance(model, Entry) and self._request["exporter"] == "torch":
            self.row |= {"status": "not applicable", "error": "torch.onnx does not take ONNX models"}
            return
        with TemporaryFolder() as folder:
            self.begin("exporting")
            export = EXPORTERS[self._request["exporter"]]
            exported = export(model, self._request["engine"], Path(folder), self.begin)
            self._judge(exported)
            if self.row["status"] == "pass" and isinstance(model, Entry):
                self.begin("measuring")
                self.row["run_seconds"] = median_run(exported, model, self._request["engine"])

    def _built(self, zoo: Zoo) -> Entry | Path:
        self.begin("building the model")
        started = time.perf_counter()
        torch.manual_seed(0)
        model = zoo.load(self._request["model"])
        self.row["seconds"]["build"] = time.perf_counter() - started
        if isinstance(model, Entry) and isinstance(model.model, torch.nn.Module):
            self.row["weights"] = _size(model.model)
            self.begin("running eager PyTorch")
            _run_eagerly(model)
        return model

    def _judge(self, exported: Exported) -> None:
        """The part of the row that the verification gives."""
        found = exported.verification
        status, why, error = of_verification(found)
        ratios = [row["ratio"] for row in found["comparisons"] if row["status"] in PASSING]
        self.row |= {
            "status": status,
            "causes": list(why),
            "error": " ".join(error.split())[:_LONGEST_ERROR],
            "stage": "" if status == "pass" else "verifying",
            "cases": len(found["cases"]),
            "tolerance_used": max((float(ratio) for ratio in ratios), default=None),
            "rungs": dict(exported.rungs),
        }
        self.row["seconds"] |= exported.seconds


def _run_eagerly(entry: Entry) -> None:
    """Run the model once in evaluation mode; its state and the example inputs stay as they are."""
    args, kwargs = copy.deepcopy((entry.args, dict(entry.kwargs)))
    with without_kernels(), keeping_state(entry.model), frozen(entry.model), torch.no_grad():
        entry.model(*args, **kwargs)


def _size(module: torch.nn.Module) -> int:
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _versions(packages: list[str]) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in packages}


def _raise_lack_of_memory(error: Exception) -> None:
    """Raise MemoryError if that is what an exception, or one that led to it, is about: the parent knows the limit."""
    for cause in causes(error):
        if isinstance(cause, MemoryError) or (isinstance(cause, RuntimeError) and is_lack_of_memory(str(cause))):
            raise MemoryError(str(cause)) from error


def _one_line(error: BaseException) -> str:
    text = error.message if isinstance(error, OpbridgeError) else described_error(error)
    return " ".join(text.split())[:_LONGEST_ERROR]


if __name__ == "__main__":
    sys.exit(main())
