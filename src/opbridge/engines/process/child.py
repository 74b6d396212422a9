"""The program that runs in an engine's child process: ``python -m opbridge.engines.process.child``.

It reads frames (:mod:`opbridge.engines.process.frames`) from stdin and answers on stdout until stdin is closed: one
"load" and any number of "run" and "measure", or any number of "ask", "compile" and "profile".
:class:`opbridge.engines.process.host.EngineProcess` is the parent's side. The child may run in another Python
environment that has only NumPy and ml_dtypes of opbridge's dependencies.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from opbridge import engines
from opbridge.engines.base import Session
from opbridge.engines.process.frames import read_frame, write_frame
from opbridge.engines.process.lifeline import end_with_parent, end_within
from opbridge.engines.process.measuring import measured
from opbridge.engines.roles import AnswersQuestions, CompilesAhead, Profiles
from opbridge.errors import EngineError, OpbridgeError

__all__ = ["main", "serve"]


Arrays = dict[str, np.ndarray]
Answer = Callable[[dict[str, Any], Arrays], tuple[dict[str, Any], Arrays]]
"""Answers a request, which is JSON data and arrays, with the same."""


def main() -> int:
    """Answer the requests of an engine's parent process."""
    return serve(_Engine())


def serve(answer: Answer) -> int:
    """Answer requests until the parent closes the pipe; an error is an answer too."""
    requests, answers = _take_over_pipes()
    faulthandler.enable()
    end_with_parent()
    _die_first()
    with contextlib.suppress(EOFError, BrokenPipeError), requests, answers:
        while True:
            message, arrays = read_frame(requests)
            try:
                _set_limits(message["limits"])
                write_frame(answers, *answer(message, arrays))
            except BrokenPipeError:
                raise
            except BaseException as error:
                write_frame(answers, {"raised": _described(error)})
            finally:
                end_within(None)
    return 0


class _Engine:
    """Answers the requests about one engine."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def __call__(self, message: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        match message["verb"]:
            case "load":
                self._session = session = _load(message)
                specs = {"inputs": session.inputs, "outputs": session.outputs}
                return {name: [spec.to_dict() for spec in found] for name, found in specs.items()}, {}
            case "profile":
                return {"nodes": _profile(message, arrays)}, {}
            case "compile":
                return {"files": _compile(message)}, {}
            case "ask":
                return _answer(message, arrays), {}
            case "measure":
                assert self._session is not None
                return measured(functools.partial(self._session.run, arrays), message["duration"]), {}
            case _:
                assert self._session is not None
                return {}, self._session.run(arrays)


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
    # Without deleting the engine's objects one by one, which takes longer than many a model.
    os._exit(main())
