"""``opbridge conformance``: PyTorch's own operator database through an exporter and an engine."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import Commands, add_command, add_engine
from opbridge.cli._outcome import Outcome

__all__ = ["register"]


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "conformance", _run, help="run PyTorch's own operator database through an engine")
    add_engine(parser, default="onnxruntime", several=False)
    parser.add_argument("--op", nargs="+", action="extend", default=[], metavar="NAME", help="entries (default: all)")
    parser.add_argument(
        "--dtype", nargs="+", action="extend", default=[], metavar="T", help="default: float32, or an entry's first"
    )
    parser.add_argument("--dynamic", action="store_true", help="dynamic dimensions, verified at a second size")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="at most N of each entry (default: all)")
    parser.add_argument("--exporter", default="opbridge", metavar="X", help="opbridge, or torch for the plain one")
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: one per core)")
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds for a stage of a sample")
    parser.add_argument("--again", action="store_true", help="also run again what did not pass")
    parser.add_argument("-o", dest="results", default="conformance.jsonl", metavar="FILE", help="results are added")
    parser.set_defaults(action=None)
    actions = parser.add_subparsers(dest="action", required=False, metavar="report")
    report = actions.add_parser("report", help="write a page of results", allow_abbrev=False)
    for flags, words in ((("--json",), "print one JSON document"), (("-q", "--quiet"), "show no progress")):
        report.add_argument(*flags, action="store_true", default=argparse.SUPPRESS, help=words)
    report.add_argument("files", nargs="+", metavar="RESULTS", help="files of results")
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
        progress=progress,
    )
    return Outcome(found.to_dict(), conformance_view, exit_code=0 if found.passed else 1)
