"""A session in a child process, so that a crash of the engine is reported and does not end this process."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from opbridge import engines
from opbridge.engines.base import Engine, Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.process.host import EngineProcess, child_environment, describe_death
from opbridge.engines.process.limits import Limits, current_limits, limited
from opbridge.engines.roles import CompilesAhead
from opbridge.errors import EngineCrashError, EngineError

__all__ = [
    "IsolatedSession",
    "Limits",
    "SessionSettings",
    "child_environment",
    "compile_isolated",
    "describe_death",
    "limited",
]

_MOST_DEATHS = 3
"""The number of crashes and timeouts in a row after which no new process is started."""


@dataclasses.dataclass(frozen=True)
class SessionSettings:
    """The arguments of an :class:`IsolatedSession`."""

    engine: str
    path: Path
    threads: int | None = None
    providers: tuple[str, ...] | None = None
    libraries: tuple[Path, ...] = ()
    limits: Limits = dataclasses.field(default_factory=current_limits)

    def request(self) -> dict[str, Any]:
        """The request to the child process, without the engine."""
        return {
            "verb": "load",
            "path": str(self.path.absolute()),
            "threads": self.threads,
            "providers": None if self.providers is None else list(self.providers),
            "libraries": [str(library.absolute()) for library in self.libraries],
        }


class IsolatedSession(Session):
    """A model loaded by an engine in a child process, which imports NumPy and the engine but not torch.

    Use it as a context manager, or call :meth:`close`. After a crash or a timeout the next run starts a new process
    and loads the model again, up to three times in a row. One call runs at a time.

    Args:
        engine_name: The engine, as in :func:`opbridge.engines.get`.
        model_path: The model file.
        threads: The number of threads, as for :meth:`Engine.load <opbridge.engines.base.Engine.load>`.
        providers: Execution providers in order of preference.
        libraries: Libraries of kernels, built with the engine's adapter.
        limits: The limits on memory and on the time of loading and of each run; by default the current limits.

    Attributes:
        settings: These arguments.

    Raises:
        InputError: The engine or an option is unknown, or the file is not a model.
        EngineCrashError: The engine crashes, hangs, or runs out of memory. ``details`` has the end of its output.
        EngineError: The engine refuses the model.
    """

    def __init__(
        self,
        engine_name: str,
        model_path: Path | str,
        threads: int | None = None,
        *,
        providers: Sequence[str] | None = None,
        libraries: Sequence[Path | str] = (),
        limits: Limits | None = None,
    ) -> None:
        self.settings = SessionSettings(
            engine_name,
            Path(model_path),
            threads,
            None if providers is None else tuple(providers),
            tuple(Path(library) for library in libraries),
            current_limits() if limits is None else limits,
        )
        self._lock = threading.Lock()
        self._closed = False
        self._deaths = 0
        self._start()

    @classmethod
    def of(cls, settings: SessionSettings) -> IsolatedSession:
        """A new session with these settings."""
        return cls(
            settings.engine,
            settings.path,
            settings.threads,
            providers=settings.providers,
            libraries=settings.libraries,
            limits=settings.limits,
        )

    def _start(self) -> None:
        """Start a process and load the model in it."""
        family, python = engines.place_of(self.settings.engine)
        self._process = EngineProcess(self.settings.engine, python, self.settings.limits)
        try:
            answer, _ = self._process.ask("loading the model", {**self.settings.request(), "engine": family})
        except BaseException as error:
            self._process.close()
            if isinstance(error, EngineCrashError):
                error.settings = self.settings
            raise
        self.inputs = tuple(TensorSpec.from_dict(data) for data in answer["inputs"])
        self.outputs = tuple(TensorSpec.from_dict(data) for data in answer["outputs"])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; see :meth:`opbridge.engines.base.Session.run`.

        Raises:
            InputError: A name, dtype or shape does not match the model's inputs.
            EngineCrashError: The engine crashed, hung, or ran out of memory.
            EngineError: The engine failed, or the session was closed.
        """
        _, results = self._ask({"verb": "run"}, feeds)
        return {spec.name: results[spec.name] for spec in self.outputs}

    def measure(self, feeds: Mapping[str, np.ndarray], duration: float) -> Mapping[str, Any]:
        """Run the model repeatedly; see :func:`opbridge.engines.process.measuring.measured`. Raises as :meth:`run`."""
        return self._ask({"verb": "measure", "duration": duration}, feeds)[0]

    def _ask(
        self, request: Mapping[str, Any], feeds: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = checked_feeds(self.inputs, feeds)
        with self._lock:
            self._revive()
            try:
                answer = self._process.ask("running the model", request, arrays)
            except EngineCrashError as error:
                self._deaths += 1
                error.settings = self.settings
                raise
            self._deaths = 0
        return answer

    def _revive(self) -> None:
        """Start a new process if the previous one has ended."""
        if self._closed:
            raise EngineError(f"The session of {self.settings.engine} was closed.", fix="load the model again.")
        if self._process.alive:
            return
        if self._deaths >= _MOST_DEATHS:
            raise EngineCrashError(
                f"{self.settings.engine} crashed or hung {self._deaths} times in a row, and is not started again.",
                fix="see the first of these errors.",
                cause="not started",
            )
        try:
            self._start()
        except EngineCrashError:
            self._deaths += 1
            raise

    def close(self) -> None:
        """End the child process. Closing twice is allowed."""
        self._closed = True
        self._process.close()

    def __enter__(self) -> IsolatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def compile_isolated(engine: Engine, model: Path, libraries: Sequence[Path]) -> tuple[Path, ...]:
    """:meth:`CompilesAhead.compile_model <opbridge.engines.roles.CompilesAhead.compile_model>` in a child process.

    Raises:
        EngineCrashError: The engine crashes, hangs, or runs out of memory.
        EngineError: The engine can't convert or compile the model.
    """
    if not isinstance(engine, CompilesAhead):
        return ()
    family, python = engines.place_of(engine.name)
    process = EngineProcess(engine.name, python)
    paths = {"path": str(model.absolute()), "libraries": [str(library.absolute()) for library in libraries]}
    try:
        answer, _ = process.ask("compiling the model", {"verb": "compile", "engine": family, **paths})
    finally:
        process.close()
    return tuple(Path(file) for file in answer["files"])
