"""``opbridge sign``: sign a bundle, so that others can check who made it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import PROOF, Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge sign build/head --key private.pem"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "sign", _run, help="sign a bundle, so that others can check who made it")
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--key", required=True, metavar="PRIVATE.pem", help="the private key, of an elliptic curve")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.report.tables import paragraph
    from opbridge.verbs.sign import sign

    progress(f"signing {arguments.bundle}")
    data = {"bundle": arguments.bundle, "signatures": list(sign(arguments.bundle, arguments.key))}
    return Outcome(data, lambda found: [paragraph(f"signed {found['bundle']}: {', '.join(found['signatures'])}")])
