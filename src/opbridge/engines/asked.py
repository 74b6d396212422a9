"""An engine in a child process that is asked about nodes: one that crashes on a node refuses it, and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.process.host import EngineProcess
from opbridge.engines.process.limits import Limits

__all__ = ["AskedEngine"]


class AskedEngine:
    """An engine's child process for any number of questions. It starts at the first one, and again after a crash.

    Args:
        name: What it is called in errors.
        engine: The engine, as in :func:`opbridge.engines.get`.
        python: The interpreter of the environment that has it; None for this one's.
    """

    def __init__(self, name: str, engine: str, python: Path | None = None) -> None:
        self._name = name
        self._engine = engine
        self._python = python
        self._process: EngineProcess | None = None

    def answer(
        self, doing: str, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, Any]:
        """What :meth:`Engine.answer <opbridge.engines.base.Engine.answer>` says there.

        Args:
            doing: What it is at meanwhile, for errors.
            question: JSON data.
            arrays: What is better sent as bytes.

        Raises:
            EngineCrashError: The engine crashed.
            OpbridgeError: Whatever it raised.
        """
        return self._ask(doing, {"verb": "ask", "question": dict(question)}, arrays)[0]

    def results(self, model: bytes, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What it makes of a serialized ONNX model of one node, on one thread.

        Raises:
            EngineCrashError: The engine crashed.
            OpbridgeError: Whatever it raised.
        """
        with tempfile.TemporaryDirectory(prefix="opbridge-") as folder:
            path = Path(folder) / "node.onnx"
            path.write_bytes(model)
            options = {"path": str(path), "threads": 1, "providers": None, "libraries": []}
            self._ask("loading a model of one node", {"verb": "load", **options})
            return self._ask("running a model of one node", {"verb": "run"}, feeds)[1]

    def _ask(
        self, doing: str, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if self._process is None or not self._process.alive:
            self._process = EngineProcess(self._name, self._python, Limits())
        return self._process.ask(doing, {**request, "engine": self._engine}, arrays)
