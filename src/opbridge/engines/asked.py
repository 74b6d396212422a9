"""An engine in a child process that is asked about nodes, so that a crash is only a refusal of that node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.atomic import TemporaryFolder
from opbridge.engines.process.host import EngineProcess
from opbridge.engines.process.limits import Limits

__all__ = ["AskedEngine"]


class AskedEngine:
    """An engine's child process for any number of questions. It starts at the first question, and again after a crash.

    Args:
        name: The engine's name in error messages.
        engine: The engine, as in :func:`opbridge.engines.get`.
        python: The interpreter of the environment that has the engine; None for this process's interpreter.
    """

    def __init__(self, name: str, engine: str, python: Path | None = None) -> None:
        self._name = name
        self._engine = engine
        self._python = python
        self._process: EngineProcess | None = None

    def answer(
        self, doing: str, question: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, Any]:
        """Call :meth:`AnswersQuestions.answer <opbridge.engines.roles.AnswersQuestions.answer>` in the child process.

        Args:
            doing: What the engine is doing, for error messages: "judging a node".
            question: JSON data.
            arrays: Data of the question that is better sent as bytes.

        Raises:
            EngineCrashError: The engine crashed.
            OpbridgeError: The child process raised this error.
        """
        return self._ask(doing, {"verb": "ask", "question": dict(question)}, arrays)[0]

    def results(self, model: bytes, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a serialized ONNX model of one node, run on one thread.

        Raises:
            EngineCrashError: The engine crashed.
            OpbridgeError: The child process raised this error.
        """
        with TemporaryFolder() as folder:
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
