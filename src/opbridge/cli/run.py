"""``opbridge run``: run a bundle on arrays from files, without PyTorch."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable

from opbridge.bundle.load import loadable
from opbridge.cli._options import MODELS, Commands, add_command, add_engine, add_limits, add_trust
from opbridge.cli._outcome import Outcome
from opbridge.report.arrays import arrays_view

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = MODELS
EXAMPLE = "opbridge run build/head --input candidates=build/candidates.npy -o build/outputs.npz"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "run", _run, help="run a bundle on arrays from .npy or .npz files")
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="an input, or a FILE.npz that contains the inputs by name (repeatable)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT.npz", help="the file for the outputs")
    add_engine(parser, default="onnxruntime", several=False)
    add_limits(parser)
    add_trust(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import check_output, describe, fit, read_arrays, write_arrays

    check_output(arguments.output)
    feeds = read_arrays(arguments.inputs)
    progress(f"loading {arguments.bundle}")
    found = loadable(arguments.bundle, arguments.engine, trust=arguments.trust)
    with contextlib.closing(found.load(isolated=True)) as session:
        feeds = fit(feeds, session.inputs)
        progress(f"running {arguments.bundle} on {arguments.engine}")
        started = time.perf_counter()
        outputs = session.run(feeds)
        seconds = time.perf_counter() - started
    write_arrays(arguments.output, outputs)
    data = {
        "bundle": arguments.bundle,
        "engine": arguments.engine,
        "output": arguments.output,
        "outputs": [describe(name, array) for name, array in outputs.items()],
        "seconds": seconds,
        "note": found.note,
    }
    return Outcome(data, arrays_view)
