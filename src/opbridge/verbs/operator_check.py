"""Checks the operators and mappings that a file declares, in PyTorch and in engines.

The checks run in a child process (:mod:`opbridge.verbs.operator_child`), because a faulty kernel may write to invalid
memory; its crash is reported as a result.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import opbridge.errors
from opbridge import engines as known_engines
from opbridge.engines.process.isolation import child_environment, describe_death
from opbridge.errors import InputError, OpbridgeError
from opbridge.proof.operators.result import CheckResult, OperatorCheck

__all__ = ["check_operators"]


def check_operators(
    file: str | Path,
    *,
    engines: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda doing: None,
) -> OperatorCheck:
    """Check each operator and mapping that a file declares, on its samples.

    In PyTorch, the checks are ``torch.library.opcheck``, the shape function against the operator, the kernel against
    the Python function, and the gradients. For each engine, every sample is exported and verified, with its kernel and
    with its body.

    Args:
        file: A Python file with ``@opbridge.operator``, ``@opbridge.decomposition`` or ``@opbridge.translation``.
        engines: The engines; by default ONNX Runtime. An engine that is not installed is reported as not run.
        progress: A callback that receives the name of each check as it begins.

    Raises:
        InputError: The file is missing, fails when it is imported, or declares nothing; an engine is unknown.
    """
    for name in engines or ():
        known_engines.get(name)
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        raise InputError(
            f"There is no Python file {str(file)!r}.",
            fix="name the file that declares the operator; opbridge new-op writes one to begin with.",
        )
    results: list[CheckResult] = []
    doing: dict[str, str] = {}
    progress(_described(doing))
    request = {"file": str(path), "engines": list(engines or ("onnxruntime",))}
    with _child(request) as (process, log):
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "raised" in message:
                raise _raised(message["raised"])
            if "result" in message:
                results.append(CheckResult(**message["result"]))
            else:
                earlier, doing = doing, message["doing"]
                if _described(doing) != _described(earlier):
                    progress(_described(doing))
        code = process.wait()
        if code != 0:
            results.append(_crash(code, doing, log))
    return OperatorCheck(str(file), tuple(results))


@contextlib.contextmanager
def _child(request: Mapping[str, Any]) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Run the child process, which is ended whenever the block is left."""
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-P", "-m", "opbridge.verbs.operator_child", json.dumps(request)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=child_environment()
        )
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _described(doing: Mapping[str, str]) -> str:
    place = ", ".join(filter(None, (doing.get("target"), doing.get("sample"))))
    return f"checking {place}" if place else "importing"


def _crash(code: int, doing: Mapping[str, str], log: Any) -> CheckResult:
    """The result of the check during which the child crashed."""
    size = log.seek(0, 2)
    log.seek(max(0, size - 16384))
    place = {"target": "", "sample": "", "check": "import", **doing}
    detail = f"the process {describe_death(code)[0]}; the checks after this one were not made"
    return CheckResult(**place, status="failed", detail=detail, log=log.read().decode(errors="replace"))


def _raised(raised: Mapping[str, Any]) -> Exception:
    """The child's error as one of this process."""
    if "system" in raised:
        return OSError(*raised["system"])
    if raised["fix"] is None:
        return RuntimeError(f"{raised['error']}: {raised['message']}\n{raised['details']}")
    kind: type[OpbridgeError] = getattr(opbridge.errors, raised["error"])
    return kind(raised["message"], fix=raised["fix"], details=raised["details"])
