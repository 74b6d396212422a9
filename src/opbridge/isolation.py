"""An engine in a process of its own, so that its crash is a result and not the end of the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import opbridge.errors
from opbridge.engines.base import Session, TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.frames import read_frame, write_frame
from opbridge.errors import EngineError, InputError, OpbridgeError

__all__ = ["IsolatedSession", "child_environment", "describe_death"]

_LOG_LINES = 30


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
        self._engine = engine_name
        self._timeout = timeout
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-P", "-m", "opbridge.engines.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env=child_environment(),
        )
        request = {
            "verb": "load",
            "engine": engine_name,
            "path": str(Path(model_path).absolute()),
            "threads": threads,
            "providers": None if providers is None else list(providers),
            "memory_limit": memory_limit,
            "libraries": [str(Path(library).absolute()) for library in libraries],
        }
        try:
            answer, _ = self._ask("loading the model", request)
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
        with self._lock:
            _, results = self._ask("running the model", {"verb": "run"}, arrays)
        return {spec.name: results[spec.name] for spec in self.outputs}

    def close(self) -> None:
        """End the child process. Closing twice is allowed."""
        process, self._process = self._process, None
        if process is None:
            return
        # A child that waits for a request ends by itself when its pipe closes; one that computes does not.
        _close_pipes(process)
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._log.close()

    def __enter__(self) -> IsolatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()

    def _ask(
        self, doing: str, message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Send a request and wait for its answer; the child's error is raised here, its death too."""
        process = self._process
        if process is None:
            raise EngineError(
                f"The session of {self._engine} is closed: it was ended, or the engine crashed in an earlier call.",
                fix="load the model again.",
            )
        assert process.stdin is not None
        assert process.stdout is not None
        timed_out = threading.Event()
        alarm = None if self._timeout is None else threading.Timer(self._timeout, _end, (process, timed_out))
        if alarm is not None:
            alarm.daemon = True
            alarm.start()
        try:
            write_frame(process.stdin, message, arrays)
            answer, results = read_frame(process.stdout)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._death(doing, process, timed_out.is_set()) from None
        except OpbridgeError:
            raise
        except BaseException:
            # Half an answer may be left in the pipe, which the next call would take for its own.
            process.kill()
            self.close()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()
        if "raised" in answer:
            raise self._raised(doing, answer["raised"])
        return answer, results

    def _raised(self, doing: str, raised: Mapping[str, Any]) -> OpbridgeError:
        """The error of the child as one of this process."""
        details = raised["details"]
        if raised["fix"] is not None:
            kind = getattr(opbridge.errors, raised["error"])
            error: OpbridgeError = kind(raised["message"], fix=raised["fix"], details=details)
            return error
        if raised["error"] == "MemoryError":
            return EngineError(
                f"{self._engine} ran out of memory while {doing}.",
                fix="use smaller inputs, or raise the memory limit.",
                details=details,
            )
        return EngineError(
            f"{self._engine} failed while {doing}: {raised['error']}: {raised['message']}",
            fix=f"install another version of {self._engine}, or report this with the log.",
            details=details,
        )

    def _death(self, doing: str, process: subprocess.Popen[bytes], timed_out: bool) -> EngineError:
        """Why the child has gone: killed by the timeout or by a signal, or ended by itself."""
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        tail = self._log_tail()
        self.close()
        if timed_out:
            return EngineError(
                f"{self._engine} did not finish {doing} within {self._timeout:g} seconds, and was ended.",
                fix="give it more time, smaller inputs, or more threads.",
                details=tail,
            )
        cause, fix = describe_death(code)
        last_words = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
        said = f" The last line it printed: {last_words[:300]}" if last_words else ""
        return EngineError(f"{self._engine} {cause} while {doing}.{said}", fix=fix, details=tail)

    def _log_tail(self) -> str:
        """The last lines that the child and its engine printed."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 16384))
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def _spec(data: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(data["name"], data["dtype"], tuple(data["shape"]))


def _end(process: subprocess.Popen[bytes], timed_out: threading.Event) -> None:
    timed_out.set()
    process.kill()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def child_environment() -> dict[str, str]:
    """The environment in which a child process finds this very opbridge."""
    environment = dict(os.environ)
    folder = str(Path(opbridge.errors.__file__).parent.parent)
    # site-packages must not come before the standard library, and the child finds it anyway.
    if Path(folder).name not in ("site-packages", "dist-packages"):
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{folder}{os.pathsep}{given}" if given else folder
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def describe_death(code: int) -> tuple[str, str]:
    """How a child process ended, and what is done about an engine that ends so."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if name == "SIGKILL":
            return "was killed (SIGKILL)", "most likely memory ran out: use smaller inputs or a larger machine."
        return (
            f"crashed ({name})",
            "a crash is a bug of the engine: install another version of it, and report the model to its makers.",
        )
    if code > 255:
        return f"crashed (status {code:#010x})", "a crash is a bug of the engine: install another version of it."
    return f"ended its process with exit code {code}", "see the log; install another version of the engine."
