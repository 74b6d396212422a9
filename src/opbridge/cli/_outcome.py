"""Runs a subcommand and prints its result or error, as tables or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import faulthandler
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

from opbridge.bundle.checks import to_json
from opbridge.cli._collect import Collector
from opbridge.cli._progress import Progress
from opbridge.cli._settings import apply_defaults
from opbridge.cli._signals import Signals, Terminated, handled
from opbridge.engines.process.limits import limited
from opbridge.errors import InputError, OpbridgeError, causes, described_error
from opbridge.records import printable

__all__ = ["Outcome", "print_now", "run_command"]

_EXPORT_MODULES = {"torch", "onnx", "onnx_ir", "onnxscript"}
_TOO_MANY_FILES = {errno.EMFILE, errno.ENFILE}
_EXHAUSTED = {*_TOO_MANY_FILES, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_UNLOADED = re.compile("failed to map segment|cannot allocate memory|cannot create shared object|Too many open files")
"""What the loader of libraries says if the system refused what it needs."""
_INTERRUPTED, _BROKEN_PIPE = 130, 141
_FLUSH = re.compile(r"\n(?=\S)")
"""The beginning of a line that is not indented."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a subcommand.

    Attributes:
        data: The result as JSON data.
        view: A function that turns ``data`` into rich renderables.
        exit_code: 0 for success, 1 for a problem in the user's model or input.
        details: Long output for the log file.
    """

    data: Mapping[str, Any]
    view: Callable[[Mapping[str, Any]], Iterable[Any]]
    exit_code: int = 0
    details: str = ""


def run_command(arguments: argparse.Namespace) -> int:
    """Run the subcommand that ``arguments`` names, print its outcome, and return the exit code."""
    try:
        collector = Collector(arguments.command, arguments.log_file)
    except OSError as raised:
        refused = f"The log file {arguments.log_file!r} can't be written: {raised.strerror}."
        _show_error(InputError(refused, fix="name another file with --log-file."), None, as_json=arguments.json)
        return 1
    outcome: Outcome | None = None
    error: OpbridgeError | None = None
    signals = Signals()
    try:
        with (
            handled(signals),
            collector,
            Progress(collector.screen, quiet=arguments.quiet) as progress,
            contextlib.ExitStack() as stack,
        ):
            collector.on_release = progress.stop
            stack.enter_context(_traced_crash(collector.screen))
            if getattr(arguments, "on_screen", False) or (getattr(arguments, "verbose", 0) > 1 and not arguments.json):
                collector.release()
            _check_current_folder()
            outcome = _run_within_limits(arguments, progress)
        collector.write(outcome.details)
    except KeyboardInterrupt:
        return _interrupted(collector)
    except Terminated as raised:
        collector.close(keep=False)
        with contextlib.suppress(OSError):
            print(f"ended by {signal.Signals(raised.number).name}", file=sys.stderr)
        return 128 + raised.number
    except BrokenPipeError:
        collector.close(keep=False)
        _drop_stdout()
        return _BROKEN_PIPE
    except Exception as raised:
        if signals.interrupted:  # The interrupted code has turned the interrupt into an exception of its own.
            return _interrupted(collector)
        error = _explained(raised)
        collector.write(error.details or "" if error is raised else "".join(traceback.format_exception(raised)))
    failed = outcome is None or outcome.exit_code != 0
    log = collector.close(keep=failed)
    with _printing() as printing:
        if error is not None:
            _show_error(error, str(log) if log else None, as_json=arguments.json)
        elif outcome is not None:
            _show(outcome, as_json=arguments.json)
            if failed and log:
                print(f"log: {printable(str(log))}", file=sys.stderr)
        if sys.stdout is not None:
            sys.stdout.flush()
    if printing.failed is not None:
        return printing.failed
    return 1 if outcome is None else outcome.exit_code


def _run_within_limits(arguments: argparse.Namespace, progress: Progress) -> Outcome:
    """Run the subcommand with the defaults of pyproject.toml, and with the limits of ``add_limits``, if given."""
    apply_defaults(arguments)
    time_limit, memory_limit = getattr(arguments, "time_limit", None), getattr(arguments, "memory_limit", None)
    if time_limit is None and memory_limit is None:
        outcome: Outcome = arguments.run(arguments, progress)
        return outcome
    with limited(time_limit=time_limit, memory_limit=memory_limit):
        outcome = arguments.run(arguments, progress)
    return outcome


def _interrupted(collector: Collector) -> int:
    collector.close(keep=False)
    with contextlib.suppress(OSError):
        print("interrupted", file=sys.stderr)
    return _INTERRUPTED


def _exhausted(error: BaseException) -> OpbridgeError:
    reason = f"{error}" if isinstance(error, OSError | ImportError) else "there is not enough memory"
    return OpbridgeError(
        f"The system refused what the command needs: {reason}.",
        fix="free some memory or disk space (TMPDIR names the folder of temporary files), or raise the limits of the "
        "process (ulimit -a shows them).",
    )


def _explained(error: Exception) -> OpbridgeError:
    """The error that is shown: the system's, if it refused something, or what the user can do about it."""
    for cause in causes(error):
        # Whatever could not be opened is not to blame.
        is_unloaded = isinstance(cause, ImportError) and _UNLOADED.search(str(cause))
        if is_unloaded or (isinstance(cause, OSError) and cause.errno in _TOO_MANY_FILES):
            return _exhausted(cause)
    if isinstance(error, OpbridgeError):
        return error
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing in _EXPORT_MODULES:
        return InputError(
            f"This command needs the Python package {missing}, which is not installed here.",
            fix="pip install torch onnx onnx-ir onnxscript onnxruntime",
        )
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        return _exhausted(error)
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return _exhausted(error)  # There is no folder for temporary files.
    if isinstance(error, OSError) and error.filename is not None:
        return InputError(f"Can't use {error.filename!r}: {error.strerror}.", fix="choose another path, or repair it.")
    return OpbridgeError(
        f"opbridge itself failed with {described_error(error)}",
        fix="this is a bug in opbridge; please report it with the log.",
    )


def _check_current_folder() -> None:
    """Raise InputError if the current folder was deleted: the import of torch would end the process."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("The current folder was deleted.", fix="change to a folder that exists.") from error


def _show_error(error: OpbridgeError, log: str | None, *, as_json: bool) -> None:
    if as_json:
        _print_json({**error.to_dict(), "log": log})
        return
    # With a name of several lines in it, a message could otherwise give another fix.
    message, fix = (_FLUSH.sub("\n  ", printable(text)) for text in (error.message, error.fix))
    print(f"error: {message}\nfix: {fix}", file=sys.stderr)
    if log:
        print(f"log: {printable(str(log))}", file=sys.stderr)


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        _print_json(outcome.data)
        return
    from rich.console import Console
    from rich.text import Text

    _check_stdout()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    on_terminal = sys.stdout.isatty()
    # A pipe or a file has no width, and Rich's default of 80 columns would wrap most lines of a table.
    width = None if on_terminal or "COLUMNS" in os.environ else 160
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with contextlib.nullcontext() if on_terminal else console.capture() as captured:
        for renderable in outcome.view(printable(outcome.data)):
            is_line = isinstance(renderable, Text) and bool(renderable.no_wrap)
            console.print(renderable, soft_wrap=is_line, crop=False)
    if captured is not None:
        # Rich pads the cells of a table, also in the last column.
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _print_json(data: Mapping[str, Any]) -> None:
    _check_stdout()
    sys.stdout.write(to_json(data))


def _check_stdout() -> None:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")


@dataclasses.dataclass
class _Printing:
    """Whether the result could be printed: if not, the exit code."""

    failed: int | None = None


@contextlib.contextmanager
def _printing() -> Iterator[_Printing]:
    """Say that the result can't be printed (a full disk); say nothing if nobody reads it (``opbridge ops | head``)."""
    printing = _Printing()
    try:
        yield printing
    except OSError as error:
        printing.failed = _BROKEN_PIPE if isinstance(error, BrokenPipeError) else 1
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            with contextlib.suppress(OSError):
                _show_error(_unprintable(error), None, as_json=False)


def _unprintable(error: OSError) -> OpbridgeError:
    return OpbridgeError(
        f"the result can't be printed: {error.strerror or error}.",
        fix="redirect stdout to a place that can be written.",
    )


def print_now(line: str) -> None:
    """Print a line that can't wait for the end of the command.

    Raises:
        OpbridgeError: It can't be printed.
        BrokenPipeError: Nobody reads stdout.
    """
    try:
        _check_stdout()
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise _unprintable(error) from error


def _drop_stdout() -> None:
    """Send stdout nowhere, because Python flushes it once more at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _traced_crash(screen: TextIO) -> Iterator[None]:
    """Print the Python stack if native code crashes in this process."""
    if faulthandler.is_enabled():
        yield
        return
    try:
        faulthandler.enable(screen)
    except (OSError, ValueError, AttributeError):  # A stream without a file descriptor.
        yield
        return
    try:
        yield
    finally:
        faulthandler.disable()
