"""Sessions of ONNX Runtime in the process of the tests, for the quick tests: a child takes a quarter of a second."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.engines.process import child, host, isolation
from opbridge.engines.process.frames import read_frame, write_frame
from opbridge.engines.process.limits import Limits

_START = isolation.EngineProcess


def sessions_start_no_process() -> None:
    """From now on, sessions of ONNX Runtime without a limit of memory answer in this process, as their child would."""
    isolation.EngineProcess = _started  # type: ignore[assignment,misc]


def _started(name: str, python: Path | None = None, limits: Limits | None = None) -> host.EngineProcess:
    if name == "onnxruntime" and python is None and limits is not None and limits.memory is None:
        return _Here(name, limits)
    return _START(name, python, limits)


class _Here(host.EngineProcess):
    """What a child would answer, and the errors that it would raise."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self._limits = limits
        self._engine: child._Engine | None = child._Engine()

    @property
    def alive(self) -> bool:
        return self._engine is not None

    def ask(
        self, doing: str, message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if self._engine is None:
            raise self._closed()
        request = _sent(message, arrays)
        try:
            return _sent(*self._engine(*request))
        except Exception as error:
            raise self._raised(doing, child._described(error)) from None

    def close(self) -> None:
        self._engine = None


def _sent(
    message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The same after the way through a pipe."""
    pipe = io.BytesIO()
    write_frame(pipe, message, arrays)
    pipe.seek(0)
    return read_frame(pipe)
