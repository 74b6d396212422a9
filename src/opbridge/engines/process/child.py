"""The program that runs in an engine's child process: ``python -m opbridge.engines.process.child``.

It reads frames (:mod:`opbridge.engines.process.frames`) from stdin and answers on stdout until stdin is closed: one
"load" and any number of "run", or any number of "ask", "compile" and "profile".
:class:`opbridge.engines.process.host.EngineProcess` is the parent's side. The child may run in another Python
environment that has only NumPy and ml_dtypes of opbridge's dependencies.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from opbridge import engines
from opbridge.engines.base import Session
from opbridge.engines.process.frames import read_frame, write_frame
from opbridge.engines.process.lifeline import end_with_parent, end_within
from opbridge.engines.roles import AnswersQuestions, CompilesAhead, Profiles
from opbridge.errors import EngineError, OpbridgeError

__all__ = ["main"]


def main() -> int:
    """Answer requests until the parent closes the pipe."""
    requests, answers = _take_over_pipes()
    faulthandler.enable()
    end_with_parent()
    _die_first()
    session: Session | None = None
    with contextlib.suppress(EOFError, BrokenPipeError), requests, answers:
        while True:
            message, arrays = read_frame(requests)
            try:
                _set_limits(message["limits"])
                if message["verb"] == "load":
                    session = _load(message)
                    specs = {
                        "inputs": [spec.to_dict() for spec in session.inputs],
                        "outputs": [spec.to_dict() for spec in session.outputs],
                    }
                    write_frame(answers, specs)
                elif message["verb"] == "profile":
                    write_frame(answers, {"nodes": _profile(message, arrays)})
                elif message["verb"] == "compile":
                    write_frame(answers, {"files": _compile(message)})
                elif message["verb"] == "ask":
                    write_frame(answers, _answer(message, arrays))
                else:
                    assert session is not None
                    write_frame(answers, {}, session.run(arrays))
            except BrokenPipeError:
                raise
            except BaseException as error:
                write_frame(answers, {"raised": _described(error)})
            finally:
                end_within(None)
    return 0


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the two pipes to separate descriptors, and redirect an engine's output from stdout to stderr."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _die_first() -> None:
    """If memory runs out, let the operating system end this process, which is reported, instead of its parent."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _set_limits(limits: dict[str, Any]) -> None:
    end_within(limits["seconds"])
    if limits["memory"] is not None:
        import resource

        # A limit on address space would also count reserved memory and mapped files: gigabytes for some engines.
        which = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        hard = resource.getrlimit(which)[1]
        most = limits["memory"] if hard == resource.RLIM_INFINITY else min(limits["memory"], hard)
        resource.setrlimit(which, (most, hard))


def _load(message: dict[str, Any]) -> Session:
    engine = engines.get(message["engine"])
    session = engine.load(
        Path(message["path"]),
        threads=message["threads"],
        providers=message["providers"],
        libraries=[Path(library) for library in message["libraries"]],
    )
    _return_freed_memory()
    return session


def _return_freed_memory() -> None:
    """Return freed memory to the system: C's allocator would keep more memory than the weights use after loading."""
    # Only glibc has malloc_trim.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _profile(message: dict[str, Any], arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    engine = engines.get(message["engine"])
    assert isinstance(engine, Profiles)
    libraries = [Path(library) for library in message["libraries"]]
    times = engine.profile(Path(message["path"]), arrays, libraries=libraries, runs=message["runs"])
    return [time.to_dict() for time in times]


def _compile(message: dict[str, Any]) -> list[str]:
    engine = engines.get(message["engine"])
    assert isinstance(engine, CompilesAhead)
    libraries = [Path(library) for library in message["libraries"]]
    return [str(file) for file in engine.compile_model(Path(message["path"]), libraries)]


def _answer(message: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    engine = engines.get(message["engine"])
    assert isinstance(engine, AnswersQuestions)
    return engine.answer(message["question"], arrays)


def _described(error: BaseException) -> dict[str, Any]:
    if isinstance(error, OpbridgeError):
        return {**error.to_dict(), "details": error.details, "memory": isinstance(error, EngineError)}
    return {
        "error": type(error).__name__,
        "message": str(error),
        "fix": None,
        "memory": True,
        "details": "".join(traceback.format_exception(error)),
    }


if __name__ == "__main__":
    sys.exit(main())
