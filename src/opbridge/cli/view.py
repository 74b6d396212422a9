"""``opbridge view``: show a bundle's report and graph in the browser, served on localhost only."""

from __future__ import annotations

import argparse
import contextlib
import json
import webbrowser
from collections.abc import Callable
from pathlib import Path

from opbridge.bundle.bundle import read_bundle
from opbridge.cli._options import PROOF, Commands, add_command
from opbridge.cli._outcome import Outcome, print_now
from opbridge.errors import InputError
from opbridge.report.server import INSTALL, ReportServer, netron_folder
from opbridge.report.written import render

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge view build/head"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "view", _run, help="show a bundle's report and graph in the browser")
    parser.add_argument("path", metavar="DIR", help="the bundle or .onnx file to show")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address without opening a browser")
    parser.set_defaults(on_screen=True)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    if not 0 <= arguments.port < 1 << 16:
        raise InputError(f"--port {arguments.port}: a port is a number from 0 to 65535.", fix="choose another.")
    server = _server(Path(arguments.path), arguments.port)
    found = {"url": server.url, "graph": netron_folder() is not None}
    with server, contextlib.suppress(KeyboardInterrupt):
        if arguments.json:
            print_now(json.dumps(found))
        else:
            print_now(f"{server.url}  (press Ctrl-C to stop)")
            if not found["graph"]:
                print_now(f"the graph needs Netron: {INSTALL}")
        if not arguments.no_browser:
            webbrowser.open(server.url)
        server.wait()
    # All output was printed when the server started.
    arguments.json = False
    return Outcome(found, lambda data: ())


def _server(path: Path, port: int) -> ReportServer:
    if path.suffix == ".onnx" and not path.is_dir():
        if not path.is_file():
            raise InputError(f"There is no file {path}.", fix="check the path.")
        if netron_folder() is None:
            raise InputError("The graph needs Netron, which is not installed.", fix=INSTALL)
        return ReportServer([path.resolve()], None, port)
    bundle = read_bundle(path)
    models = [path / str(model["file"]) for model in bundle.manifest["models"]]
    # The bundle is read for each request, so that reloading the page shows a new verification.
    return ReportServer(models, lambda: render(read_bundle(path)), port, listed=bundle.manifest["files"])
