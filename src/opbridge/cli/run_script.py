"""``opbridge run-script``: run an unmodified export script with its symbolic functions honoured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opbridge.bundle.checks import to_json
from opbridge.cli._options import OLD_CODE, Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OLD_CODE
EXAMPLE = "opbridge run-script examples/tutorial/old/clamp_swish.py build/clamp_swish.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands,
        "run-script",
        _run,
        help="run an old export script with its symbolic functions",
    )
    parser.add_argument("--report", metavar="FILE", help="write the list to a JSON file instead of the screen")
    parser.add_argument("script", metavar="SCRIPT", help="the Python file; options of opbridge come before it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    parser.set_defaults(on_screen=True)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.legacy.run_script import run_script
    from opbridge.report.legacy import script_view

    # Resolve and check the path now: the script may change the working directory, and may run for a long time.
    report = None if arguments.report is None else Path(arguments.report).absolute()
    if report is not None and not report.parent.is_dir():
        raise _unwritable(arguments.report, "the folder does not exist")
    if report is not None and report.is_fifo():
        raise _unwritable(arguments.report, "it is a pipe")
    run = run_script(arguments.script, arguments.arguments)
    if report is None:
        return Outcome(run.to_dict(), script_view, run.exit_code)
    _write(report, arguments.report, run.to_dict())
    return Outcome(run.to_dict(), lambda data: (), run.exit_code)


def _write(file: Path, name: str, data: Mapping[str, Any]) -> None:
    try:
        file.write_text(to_json(data), encoding="utf-8")
    except OSError as error:
        raise _unwritable(name, error.strerror or str(error)) from error


def _unwritable(name: str, reason: str) -> InputError:
    return InputError(f"run-script: {name} can't be written: {reason}.", fix="choose another file with --report.")
