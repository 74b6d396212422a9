"""Runs many situations, each in a process that is forked from this one, where torch and opbridge are imported once.

``side_by_side.Server`` starts it and writes one JSON object per line: ``target``, ``exporter``, ``folder``,
``seconds`` and ``memory``. The answer is one line: how the process ended, null after the time limit. It saves the
imports, about half of the time that a small situation takes. It needs ``os.fork``, and no thread may have started here.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import side_by_side_child as child

WARM_UP = "side_by_side_models:double"


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _import_what_exports_import()
    for line in sys.stdin:
        order = json.loads(line)
        status = _forked(lambda order=order: _run(order), order["seconds"], Path(order["folder"]) / "output")
        print(json.dumps(status), file=answers, flush=True)


def _run(order: Mapping[str, Any]) -> None:
    child.run(order["target"], order["exporter"], Path(order["folder"]), order["memory"])


def _forked(action: Callable[[], None], seconds: float, output: Path) -> int | None:
    """Run an action in a forked process with a process group of its own; its exit code, None after the time limit."""
    process = os.fork()
    if process == 0:
        _act(action, output)
    ends = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        time.sleep(0.02)


def _act(action: Callable[[], None], output: Path) -> None:
    status = 1
    try:
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ["TMPDIR"] = str(output.parent)
        action()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


def _import_what_exports_import() -> None:
    """Import the modules that an export imports: a forked process exports a small model and writes their names."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "names"

        def export() -> None:
            for exporter in ("opbridge", "torch"):
                place = Path(folder) / exporter
                place.mkdir()
                child.run(WARM_UP, exporter, place, None)
            names.write_text("\n".join(sys.modules))

        _forked(export, 300, Path(folder) / "output")
        for name in names.read_text().splitlines() if names.exists() else ():
            if name.partition(".")[0] in {"torch", "torchvision", "onnx", "onnxscript", "onnx_ir", "opbridge", "sympy"}:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


if __name__ == "__main__":
    main()
