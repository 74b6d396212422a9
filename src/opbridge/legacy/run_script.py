"""Runs an unmodified script as ``python script.py`` does, but with the bridge on."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import re
import sys
import traceback
import types
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from opbridge.errors import InputError, OpbridgeError
from opbridge.legacy.switch import Bridged, CustomNode, bridged, custom_nodes, enable
from opbridge.records import Record
from opbridge.user_key import read_regular

__all__ = ["ScriptRun", "execute", "run_script"]

_FED_BY_OLD_NAMES = re.compile(r"Required inputs \(\[(?P<new>.+?)\]\) are missing from input feed \(\[(?P<old>.+?)\]\)")
"""ONNX Runtime's error about the names of inputs."""

_PACKAGE = str(Path(__file__).resolve().parent.parent)


@dataclasses.dataclass(frozen=True)
class ScriptRun(Record):
    """The result of running a script.

    Attributes:
        script: The path of the script, as given.
        exit_code: The exit code that ``python script.py`` would have returned.
        bridged: The old declarations that were honoured while it ran.
        custom_nodes: The custom operators without bodies in the files that it wrote.
    """

    script: str
    exit_code: int
    bridged: tuple[Bridged, ...]
    custom_nodes: tuple[CustomNode, ...] = ()


def run_script(script: str | Path, arguments: Sequence[str] = ()) -> ScriptRun:
    """Run a Python file as ``__main__`` with the bridge on.

    While it runs, ``sys.argv``, ``sys.path[0]`` and the module ``__main__`` are those of the script. An exception of
    the script is printed as Python prints it, without the frames of this package, and makes the exit code 1. Torch's
    warnings that ``torch.jit`` is deprecated are not shown: the script is run because it is old.

    Args:
        script: The path of the script.
        arguments: The command-line arguments of the script.

    Raises:
        InputError: The file can't be read or is not valid Python.
        OpbridgeError: The script raised one and did not catch it.
    """
    with enable(), warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", category)
        exit_code = execute(script, arguments)
    return ScriptRun(str(script), exit_code, bridged(), custom_nodes())


def execute(script: str | Path, arguments: Sequence[str] = (), source: str | None = None) -> int:
    """Run a Python file as ``__main__``, and return its exit code. ``source`` is used instead of the file's contents.

    Raises:
        InputError: The file can't be read or is not valid Python.
        OpbridgeError: The script raised one and did not catch it.
    """
    code = _compiled(script) if source is None else compile(source, str(script), "exec", dont_inherit=True)
    with _main_module(script, arguments) as main:
        return _execute(code, main)


def _compiled(script: str | Path) -> types.CodeType:
    try:
        return compile(read_regular(Path(script)), str(script), "exec", dont_inherit=True)
    except OSError as error:
        siblings = [file.name for file in Path(script).parent.glob("*.py")]
        close = difflib.get_close_matches(Path(script).name, siblings, n=1)
        raise InputError(
            f"run-script: {script} can't be read: {error.strerror or error}.",
            fix=f"pass {(Path(script).parent / close[0]).as_posix()}." if close else "pass the path of the script.",
        ) from error
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(
            f"run-script: {script}{line} is not valid Python: {error}.", fix="correct that line."
        ) from error


@contextlib.contextmanager
def _main_module(script: str | Path, arguments: Sequence[str]) -> Iterator[types.ModuleType]:
    """Replace ``__main__`` and the command line by those of the script, and restore them afterwards."""
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
        match = _FED_BY_OLD_NAMES.search(str(error))
        if match is not None:
            print(
                f"fix: add input_names=[{match['old']}] to the call of torch.onnx.export: without it, the inputs are "
                f"called like the parameters of forward ({match['new']}).",
                file=sys.stderr,
            )
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
