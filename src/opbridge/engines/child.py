"""The program of an engine's child process: ``python -m opbridge.engines.child``.

It reads frames (:mod:`opbridge.engines.frames`) from stdin and answers on stdout until its stdin is closed: "load",
then any number of "run"; or any number of "ask". :class:`opbridge.engines.process.EngineProcess` is the other side.
It may run in another Python environment, where of opbridge's dependencies only NumPy and ml_dtypes are installed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from opbridge import engines
from opbridge.engines.base import Session
from opbridge.engines.frames import read_frame, write_frame
from opbridge.errors import OpbridgeError

__all__ = ["main"]


def main() -> int:
    """Serve one model until the parent closes the pipe."""
    requests, answers = _take_over_pipes()
    faulthandler.enable()
    session: Session | None = None
    with contextlib.suppress(EOFError, BrokenPipeError), requests, answers:
        while True:
            message, arrays = read_frame(requests)
            try:
                if message["verb"] == "load":
                    session = _load(message)
                    specs = {
                        "inputs": [spec.to_dict() for spec in session.inputs],
                        "outputs": [spec.to_dict() for spec in session.outputs],
                    }
                    write_frame(answers, specs)
                elif message["verb"] == "ask":
                    write_frame(answers, engines.get(message["engine"]).answer(message["question"], arrays))
                else:
                    assert session is not None
                    write_frame(answers, {}, session.run(arrays))
            except BrokenPipeError:
                raise
            except BaseException as error:
                write_frame(answers, {"raised": _described(error)})
    return 0


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two pipes under descriptors of their own, so that what an engine prints to stdout ends up in stderr."""
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _load(message: dict[str, Any]) -> Session:
    limit = message["memory_limit"]
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    engine = engines.get(message["engine"])
    return engine.load(
        Path(message["path"]),
        threads=message["threads"],
        providers=message["providers"],
        libraries=[Path(library) for library in message["libraries"]],
    )


def _described(error: BaseException) -> dict[str, Any]:
    if isinstance(error, OpbridgeError):
        return {**error.to_dict(), "details": error.details}
    return {
        "error": type(error).__name__,
        "message": str(error),
        "fix": None,
        "details": "".join(traceback.format_exception(error)),
    }


if __name__ == "__main__":
    sys.exit(main())
