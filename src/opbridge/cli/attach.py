"""``opbridge attach``: attach bodies and kernels to custom nodes of other domains."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands, add_engine, add_ops
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, written

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge attach build/foreign.onnx --ops examples/tutorial/clamp_swish.py -o build/attached.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "attach", _run, help="attach the declared bodies and kernels to custom nodes")
    add_engine(parser, default=None, shown="none, which attaches bodies only")
    add_ops(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.attach import attach

    engines = arguments.engines or ()
    return written(
        arguments, progress, lambda: attach(arguments.model, ops=tuple(arguments.ops), engines=tuple(engines))
    )
