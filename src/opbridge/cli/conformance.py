"""``opbridge conformance``: check an exporter and an engine on PyTorch's operator database."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import OPERATORS, Commands, add_command, add_engine
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OPERATORS
EXAMPLE = "opbridge conformance --op hypot --samples 3 -o build/hypot.jsonl"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "conformance", _run, help="check an exporter and an engine on PyTorch's operator database"
    )
    add_engine(parser, default="onnxruntime", several=False)
    parser.add_argument(
        "--op", nargs="+", action="extend", default=[], metavar="NAME", help="the entries to run (default: all)"
    )
    parser.add_argument(
        "--dtype",
        nargs="+",
        action="extend",
        default=[],
        metavar="T",
        help="element types (default: float32, or the first one that the entry supports)",
    )
    parser.add_argument(
        "--dynamic", action="store_true", help="export with dynamic dimensions and verify at a second size"
    )
    parser.add_argument(
        "--samples", type=int, default=0, metavar="N", help="the maximum number of samples per entry (default: all)"
    )
    parser.add_argument(
        "--exporter", default="opbridge", metavar="X", help="opbridge (default), or torch for torch.onnx.export"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: one per core)")
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        metavar="S",
        help="time limit of each stage of a sample, in seconds (default: 60)",
    )
    parser.add_argument(
        "--nan",
        choices=("absent", "exact"),
        default="exact",
        help="exact: NaN as in PyTorch (default); absent: samples with NaN are outside the contract",
    )
    parser.add_argument(
        "--kernels", choices=("auto", "never", "always"), default="auto", help="opbridge's own kernels, as for export"
    )
    parser.add_argument("--again", action="store_true", help="also rerun entries that did not pass before")
    parser.add_argument(
        "-o",
        dest="results",
        default="conformance.jsonl",
        metavar="FILE",
        help="the file that results are appended to (default: conformance.jsonl)",
    )
    parser.set_defaults(action=None)
    actions = parser.add_subparsers(dest="action", required=False, metavar="report")
    words = "write an HTML page about results of opbridge conformance"
    report = actions.add_parser("report", help=words, description=words, allow_abbrev=False)
    for flags, words in (
        (("--json",), "print the result as JSON instead of tables"),
        (("-q", "--quiet"), "do not show progress"),
    ):
        report.add_argument(*flags, action="store_true", default=argparse.SUPPRESS, help=words)
    report.add_argument("files", nargs="+", metavar="RESULTS", help="files of results, one or more runs")
    report.add_argument("-o", dest="site", required=True, metavar="DIR", help="the folder for the page")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.report.conformance import conformance_view, page_view

    if arguments.action == "report":
        from opbridge.report.conformance_page import write_page

        return Outcome(write_page(arguments.files, arguments.site).to_dict(), page_view)
    from opbridge.proof.conformance.run import run_conformance

    found = run_conformance(
        file=arguments.results,
        engine=arguments.engine,
        exporter=arguments.exporter,
        entries=arguments.op,
        dtypes=arguments.dtype,
        dynamic=arguments.dynamic,
        samples=arguments.samples,
        jobs=arguments.jobs,
        limit=arguments.limit,
        again=arguments.again,
        nan=arguments.nan,
        kernels=arguments.kernels,
        progress=progress,
    )
    return Outcome(found.to_dict(), conformance_view, exit_code=0 if found.passed else 1)
