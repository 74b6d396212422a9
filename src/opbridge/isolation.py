"""An engine in a process of its own, so that its crash is a result and not the end of the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from opbridge import engines
from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.process import EngineProcess, child_environment, describe_death
from opbridge.errors import InputError

__all__ = ["IsolatedSession", "child_environment", "describe_death"]


class IsolatedSession(Session):
    """A model loaded by an engine in a child process, which imports NumPy and the engine but not torch.

    Use it as a context manager, or call :meth:`close`. After a crash or a timeout the session is closed. One call runs
    at a time.

    Args:
        engine_name: The engine, as in :func:`opbridge.engines.get`.
        model_path: The model file.
        threads: See :meth:`Engine.load <opbridge.engines.base.Engine.load>`.
        providers: Likewise.
        timeout: The seconds that loading, and each run, may take; None waits for ever.
        memory_limit: The bytes of address space the child may use (not on Windows); None sets no limit.
        libraries: See :meth:`Engine.load <opbridge.engines.base.Engine.load>`.

    Raises:
        InputError: The engine or an option is unknown, or the file is no model.
        EngineError: The engine refuses the model, crashes, or hangs. ``details`` has the end of what it printed.
    """

    def __init__(
        self,
        engine_name: str,
        model_path: Path | str,
        threads: int | None = None,
        timeout: float | None = 600.0,
        *,
        providers: Sequence[str] | None = None,
        memory_limit: int | None = None,
        libraries: Sequence[Path | str] = (),
    ) -> None:
        if memory_limit is not None and sys.platform == "win32":
            raise InputError("A memory limit can't be set on Windows.", fix="leave memory_limit out.")
        family, python = engines.place_of(engine_name)
        self._process = EngineProcess(engine_name, python, timeout)
        request = {
            "verb": "load",
            "engine": family,
            "path": str(Path(model_path).absolute()),
            "threads": threads,
            "providers": None if providers is None else list(providers),
            "memory_limit": memory_limit,
            "libraries": [str(Path(library).absolute()) for library in libraries],
        }
        try:
            answer, _ = self._process.ask("loading the model", request)
        except BaseException:
            self.close()
            raise
        self.inputs = tuple(_spec(data) for data in answer["inputs"])
        self.outputs = tuple(_spec(data) for data in answer["outputs"])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`.

        Raises:
            InputError: A name, dtype or shape does not fit.
            EngineError: The engine failed, crashed or hung; or an earlier call did, or the session was closed.
        """
        arrays = checked_feeds(self.inputs, feeds)
        _, results = self._process.ask("running the model", {"verb": "run"}, arrays)
        return {spec.name: results[spec.name] for spec in self.outputs}

    def close(self) -> None:
        """End the child process. Closing twice is allowed."""
        self._process.close()

    def __enter__(self) -> IsolatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _spec(data: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(data["name"], data["dtype"], tuple(data["shape"]))
