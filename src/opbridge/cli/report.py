"""``opbridge report``: write the report of a bundle as HTML, Markdown or JUnit XML."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opbridge.bundle.bundle import read_bundle
from opbridge.cli._options import PROOF, Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.errors import InputError
from opbridge.report.page_words import CLAIM
from opbridge.report.tables import paragraph, unbroken
from opbridge.report.written import write_report

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge report build/head --format junit -o build/head.xml"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "report", _run, help="write the report of a bundle as HTML, Markdown or JUnit XML")
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument(
        "--format", choices=("html", "markdown", "junit"), default="html", help="the format (default: html)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write (default for html: report.html in the bundle)"
    )


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    if arguments.output is None and arguments.format != "html":
        raise InputError(f"--format {arguments.format} needs a file.", fix="name it with -o FILE.")
    progress(f"reading {arguments.bundle}")
    bundle = read_bundle(arguments.bundle)
    file = write_report(bundle, arguments.format, arguments.output)
    data = {"report": str(file), "format": arguments.format, "verified": bundle.verified, "claim": bundle.claim}
    return Outcome(data, _view)


def _view(data: Mapping[str, Any]) -> Iterable[Any]:
    if data["claim"]:
        yield paragraph(CLAIM, "yellow")
    yield unbroken(f"report: {data['report']}", "bold")
