"""The parent's side of an engine's child process: requests, answers, and how the process ended.

The engine may be in another Python environment; see :mod:`opbridge.engines.environments`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

import opbridge.errors
from opbridge.atomic import TemporaryFolder
from opbridge.engines.process.frames import read_frame, write_frame
from opbridge.engines.process.limits import Limits, current_limits
from opbridge.errors import EngineCrashError, EngineError, OpbridgeError

__all__ = ["EngineProcess", "child_environment", "describe_death", "is_lack_of_memory"]

_CHILD = "opbridge.engines.process.child"
_LOG_LINES = 30
_NO_MEMORY = re.compile(
    r"bad_alloc|bad allocation|failed to allocate|unable to allocate|cannot allocate memory|out of memory",
    re.IGNORECASE,
)

# In another environment, the child must find this package, but no other package that is installed next to it.
_START_ELSEWHERE = f"""
import importlib.util, runpy, sys
place = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("opbridge", place + "/__init__.py", submodule_search_locations=[place])
sys.modules["opbridge"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["opbridge"])
runpy.run_module("{_CHILD}", run_name="__main__")
"""


class EngineProcess:
    """A child process that imports NumPy and one engine. Call :meth:`close` when done.

    A crash or a timeout closes the process. It answers one request at a time.

    Args:
        name: The engine's name in error messages.
        python: The interpreter of the environment that has the engine; None for this process's interpreter.
        limits: The limits on the child's time and memory; by default the current limits.
        program: The module that the child runs, if it is one of this process's interpreter.
    """

    def __init__(
        self, name: str, python: Path | None = None, limits: Limits | None = None, *, program: str = _CHILD
    ) -> None:
        self.name = name
        self._limits = current_limits() if limits is None else limits
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is
        # A child that crashes or is killed does not delete its own temporary files.
        scratch = TemporaryFolder()
        process = subprocess.Popen(
            _command(python, program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env=child_environment(Path(scratch.name)),
        )
        self._process: subprocess.Popen[bytes] | None = process
        self._end = weakref.finalize(self, _close, process, self._log, scratch)

    @property
    def alive(self) -> bool:
        """Whether the process can answer: it was not closed and did not crash in an earlier call."""
        return self._process is not None

    def ask(
        self, doing: str, message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Send a request and wait for its answer. Errors and crashes of the child are raised here.

        Args:
            doing: What the engine is doing, for error messages: "loading the model".
            message: JSON data.
            arrays: Arrays by name.

        Raises:
            OpbridgeError: The child process raised an error of opbridge, which is raised again here.
            EngineCrashError: The engine crashed, hung, or ran out of memory.
            EngineError: The engine failed, crashed in an earlier call, or the process was closed.
        """
        with self._lock:
            return self._ask(doing, message, arrays)

    def _ask(
        self, doing: str, message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        process = self._process
        if process is None:
            raise self._closed()
        assert process.stdin is not None
        assert process.stdout is not None
        timed_out = threading.Event()
        seconds = self._limits.seconds
        alarm = None if seconds is None else threading.Timer(seconds, _end, (process, timed_out))
        if alarm is not None:
            alarm.daemon = True
            alarm.start()
        try:
            limits = {"seconds": seconds, "memory": self._limits.memory}
            write_frame(process.stdin, {**message, "limits": limits}, arrays)
            answer, results = read_frame(process.stdout)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._death(doing, process, timed_out.is_set()) from None
        except OpbridgeError:
            raise
        except BaseException:
            # The pipe may still contain a part of an answer, which the next call would read as its own.
            process.kill()
            self.close()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()
        if "raised" in answer:
            raise self._raised(doing, answer["raised"])
        return answer, results

    def kill(self) -> None:
        """End the child process at once; an :meth:`ask` that another thread waits in raises EngineCrashError."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the child process. Closing twice is allowed."""
        self._process = None
        self._end()

    def _closed(self) -> EngineError:
        return EngineError(
            f"The session of {self.name} is closed: it was closed, or the engine crashed in an earlier call.",
            fix="load the model again.",
        )

    def _raised(self, doing: str, raised: Mapping[str, Any]) -> OpbridgeError:
        """The child's error as an exception of this process."""
        details = raised["details"]
        if raised["error"] == "MemoryError" or (raised["memory"] and is_lack_of_memory(raised["message"])):
            # An allocator that ran out of memory may not release it, so the next small request would fail too.
            self.close()
            return self._out_of_memory(doing, details)
        if raised["fix"] is not None:
            kind = getattr(opbridge.errors, raised["error"])
            error: OpbridgeError = kind(raised["message"], fix=raised["fix"], details=details)
            return error
        return EngineError(
            f"{self.name} failed while {doing}: {raised['error']}: {raised['message']}",
            fix=f"install another version of {self.name}, or report this with the log.",
            details=details,
        )

    def _out_of_memory(self, doing: str, details: str, killed_by: str | None = None) -> EngineCrashError:
        limit = self._limits.memory
        within = "" if limit is None else f" within the limit of {limit / (1 << 30):.3g} GiB"
        return EngineCrashError(
            f"{self.name} ran out of memory{within} while {doing}.",
            fix="use smaller inputs, or raise the memory limit." if within else "use smaller inputs.",
            details=details,
            cause="out of memory",
            signal=killed_by,
        )

    def _death(self, doing: str, process: subprocess.Popen[bytes], timed_out: bool) -> EngineCrashError:
        """The error that says how the child ended: killed after the timeout or by a signal, or exited."""
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        tail = self._log_tail()
        self.close()
        if timed_out:
            return EngineCrashError(
                f"{self.name} did not finish {doing} within {self._limits.seconds:g} seconds, and was ended.",
                fix="give it more time, smaller inputs, or more threads.",
                details=tail,
                cause="out of time",
            )
        killed_by = _signal_name(code)
        if killed_by == "SIGABRT" and is_lack_of_memory(tail):
            return self._out_of_memory(doing, tail, killed_by)
        described, fix = describe_death(code)
        # Python's own report follows this marker and belongs in the log.
        printed = tail.partition("Fatal Python error: ")[0].splitlines()
        last_words = next((line.strip() for line in reversed(printed) if line.strip()), "")
        last_line = f" The last line it printed: {last_words[:300]}" if last_words else ""
        return EngineCrashError(
            f"{self.name} {described} while {doing}.{last_line}",
            fix=fix,
            details=tail,
            cause="killed" if killed_by == "SIGKILL" else "ended" if 0 <= code <= 255 else "crashed",
            signal=killed_by,
        )

    def _log_tail(self) -> str:
        """The last lines of the output of the child and its engine."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 16384))
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def is_lack_of_memory(message: str) -> bool:
    """Whether an engine or PyTorch says in a message that it got no memory."""
    return _NO_MEMORY.search(message) is not None


def _command(python: Path | None, program: str) -> list[str]:
    if python is None:
        return [sys.executable, "-P", "-m", program]
    return [str(python), "-I", "-c", _START_ELSEWHERE, str(Path(opbridge.errors.__file__).parent)]


def _end(process: subprocess.Popen[bytes], timed_out: threading.Event) -> None:
    timed_out.set()
    process.kill()


def _close(process: subprocess.Popen[bytes], log: IO[bytes], scratch: TemporaryFolder) -> None:
    # A child that waits for a request ends when its pipe closes; a child that is computing does not.
    _close_pipes(process)
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    log.close()
    scratch.cleanup()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def child_environment(scratch: Path | None = None) -> dict[str, str]:
    """The environment variables with which a child process imports this installation of opbridge.

    Args:
        scratch: The folder for the child's temporary files; the caller deletes it when the child has ended.
    """
    environment = dict(os.environ)
    if scratch is not None:
        environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    folder = str(Path(opbridge.errors.__file__).parent.parent)
    # site-packages must not come before the standard library; the child finds site-packages anyway.
    if Path(folder).name not in ("site-packages", "dist-packages"):
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{folder}{os.pathsep}{given}" if given else folder
    environment["PYTHONUNBUFFERED"] = "1"
    # By default, ONNX Runtime sends facts about the model to its makers, and leaves a database in the user's cache.
    environment.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return environment


def describe_death(code: int) -> tuple[str, str]:
    """How a child process ended, and the suggested fix."""
    name = _signal_name(code)
    if name is not None:
        if name == "SIGKILL":
            return "was killed (SIGKILL)", "most likely memory ran out: use smaller inputs or a larger machine."
        return (
            f"crashed ({name})",
            "a crash is a bug in the engine: install another version of it, and report the model to its developers.",
        )
    if code > 255:
        return f"crashed (status {code:#010x})", "a crash is a bug in the engine: install another version of it."
    return f"ended its process with exit code {code}", "see the log; install another version of the engine."


def _signal_name(code: int) -> str | None:
    """The name of the signal that ended a process with this exit code."""
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
