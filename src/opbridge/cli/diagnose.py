"""``opbridge diagnose``: list the operators of a model, their three links, and a fix for each broken link."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from opbridge.capture.entry import Entry, load_entry
from opbridge.cli._options import MODELS, Commands, add_command, add_model_options, add_verbose
from opbridge.cli._outcome import Outcome
from opbridge.verbs.arguments import is_onnx
from opbridge.verbs.diagnose import diagnose

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = MODELS
EXAMPLE = "opbridge diagnose examples/detector_head.py:model"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "diagnose", _run, help="list the operators of a model and a fix for each unsupported one"
    )
    add_model_options(parser)
    add_verbose(parser, "list the native operators, and the findings that need no action, too")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.report.diagnosis import diagnosis_view

    progress(f"loading {arguments.entry}")
    is_model = is_onnx(arguments.entry)
    entry = Entry(arguments.entry, arguments.entry) if is_model else load_entry(arguments.entry)
    diagnosis = diagnose(
        entry.model,
        entry.args,
        entry.kwargs,
        engines=arguments.engines,
        dynamic_shapes=entry.dynamic_shapes,
        opset=arguments.opset,
        ops=tuple(arguments.ops),
        progress=progress,
    )
    view = functools.partial(diagnosis_view, verbose=arguments.verbose)
    return Outcome(diagnosis.to_dict(), view, 0 if diagnosis.ok else 1, diagnosis.details)
