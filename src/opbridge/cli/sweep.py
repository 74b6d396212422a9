"""``opbridge sweep``: run many models through an exporter and an engine, and compare such runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import PROOF, Commands, add_command, add_engine, size, words
from opbridge.cli._outcome import Outcome
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge sweep examples --filter branch detector_head -o build/sweep"
_USAGE = """opbridge sweep ZOO [ZOO ...] [options] [-o DIR]
       opbridge sweep report DIR [-o FILE.html] [--parquet FILE.parquet]
       opbridge sweep diff OLD NEW [--junit FILE.xml]"""


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "sweep", _run, help="export, verify and measure many models, and compare two such runs"
    )
    parser.usage = _USAGE
    parser.add_argument(
        "words",
        nargs="+",
        metavar="ZOO",
        help="models: torchvision, timm or timm:all, transformers, operators; a Python file with a dict `entries`; a "
        "folder of entry, .onnx or .pt2 files. Or `report DIR`, or `diff OLD NEW`",
    )
    add_engine(parser, default="onnxruntime")
    parser.add_argument(
        "--exporter",
        dest="exporters",
        type=words,
        default=("opbridge",),
        metavar="X[,X2]",
        help="opbridge (default), torch for the plain torch.onnx.export, or both",
    )
    parser.add_argument(
        "--filter",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATTERN",
        help="the models to run, such as 'resnet*'",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="models at a time on this machine (default: one per core)"
    )
    parser.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster; local starts one on this machine")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="time limit of one model (default: 600)"
    )
    parser.add_argument("--memory", type=size, metavar="SIZE", help="memory limit of one model, such as 8GiB")
    parser.add_argument("--again", action="store_true", help="also rerun models that did not pass before")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="DIR",
        help="the folder of the results; a stopped sweep continues there (default: results); of `report`: the page "
        "(default: report.html in DIR)",
    )
    parser.add_argument("--junit", metavar="FILE.xml", help="of `diff`: also write the result as JUnit XML")
    parser.add_argument("--parquet", metavar="FILE.parquet", help="of `report`: also write the rows as a table")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    verb, *rest = arguments.words
    if verb == "report":
        return _report(rest, arguments)
    if verb == "diff":
        return _diff(rest, arguments)
    from opbridge.report.sweep import sweep_view
    from opbridge.sweep.run import run_sweep

    found = run_sweep(
        arguments.words,
        arguments.output or "results",
        engines=arguments.engines,
        exporters=arguments.exporters,
        patterns=arguments.filter,
        jobs=arguments.jobs,
        ray=arguments.ray,
        timeout=arguments.timeout,
        memory=arguments.memory,
        again=arguments.again,
        progress=progress,
    )
    return Outcome(found.to_dict(), sweep_view, exit_code=0 if found.passed else 1)


def _report(folders: list[str], arguments: argparse.Namespace) -> Outcome:
    from opbridge.report.sweep import page_view
    from opbridge.sweep.report import write_report

    if len(folders) != 1:
        raise InputError("`sweep report` takes one folder of results.", fix="write `opbridge sweep report results`.")
    return Outcome(write_report(folders[0], arguments.output, arguments.parquet).to_dict(), page_view)


def _diff(folders: list[str], arguments: argparse.Namespace) -> Outcome:
    from opbridge.report.sweep import diff_view
    from opbridge.sweep.diff import compare_sweeps, write_junit

    if len(folders) != 2:
        raise InputError("`sweep diff` takes two folders of results.", fix="write `opbridge sweep diff old new`.")
    found = compare_sweeps(*folders)
    if arguments.junit:
        write_junit(found, arguments.junit)
    return Outcome(found.to_dict(), diff_view, exit_code=1 if found.regressions else 0)
