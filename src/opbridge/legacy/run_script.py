"""Runs an unmodified script with the bridge on, as ``python script.py`` would without it."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opbridge.errors import InputError, OpbridgeError
from opbridge.legacy.switch import Bridged, bridged, enable

__all__ = ["ScriptRun", "run_script"]

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclasses.dataclass(frozen=True)
class ScriptRun:
    """A script that ran.

    Attributes:
        script: The file, as it was named.
        exit_code: What ``python script.py`` would have ended with.
        bridged: The old declarations that were honoured meanwhile.
    """

    script: str
    exit_code: int
    bridged: tuple[Bridged, ...]

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON data."""
        return {
            "script": self.script,
            "exit_code": self.exit_code,
            "bridged": [item.to_dict() for item in self.bridged],
        }


def run_script(script: str | Path, arguments: Sequence[str] = ()) -> ScriptRun:
    """Run a Python file as ``__main__`` with ``arguments``, the bridge on.

    ``sys.argv``, ``sys.path[0]`` and the module ``__main__`` are the script's meanwhile. An exception of the script is
    printed as Python prints it, without frames of this package, and makes the exit code 1.

    Raises:
        InputError: There is no such file, or it is no Python.
        OpbridgeError: The script let one through.
    """
    code = _compiled(script)
    with _main_module(script, arguments) as main, enable():
        exit_code = _execute(code, main)
    return ScriptRun(str(script), exit_code, bridged())


def _compiled(script: str | Path) -> types.CodeType:
    try:
        with io.open_code(str(Path(script).absolute())) as file:
            source = file.read()
        return compile(source, str(script), "exec", dont_inherit=True)
    except OSError as error:
        siblings = [file.name for file in Path(script).parent.glob("*.py")]
        close = difflib.get_close_matches(Path(script).name, siblings, n=1)
        raise InputError(
            f"run-script: {script} can't be read: {error.strerror}.",
            fix=f"write {(Path(script).parent / close[0]).as_posix()}." if close else "name the script's file.",
        ) from error
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"run-script: {script}{line} is no Python: {error}.", fix="correct that line.") from error


@contextlib.contextmanager
def _main_module(script: str | Path, arguments: Sequence[str]) -> Iterator[types.ModuleType]:
    """A fresh ``__main__``, with the command line of the script; what was there comes back."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(script), __builtins__=__builtins__, __cached__=None)
    saved = sys.modules["__main__"], sys.argv, list(sys.path)
    sys.modules["__main__"], sys.argv = main, [str(script), *arguments]
    sys.path[:1] = [str(Path(script).resolve().parent)]
    try:
        yield main
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = saved


def _execute(code: types.CodeType, main: types.ModuleType) -> int:
    try:
        exec(code, main.__dict__)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except OpbridgeError:
        raise
    except Exception as error:
        print(_without_our_frames(error), end="", file=sys.stderr)
        return 1
    return 0


def _without_our_frames(error: BaseException) -> str:
    story = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [story]
    while waiting:
        part = waiting.pop()
        if part is not None:
            own = [frame for frame in part.stack if not str(Path(frame.filename).resolve()).startswith(_PACKAGE)]
            part.stack = traceback.StackSummary.from_list(own)
            waiting += [part.__cause__, part.__context__]
    return "".join(story.format())
