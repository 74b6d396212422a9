"""Helpers of the commands that change an ``.onnx`` file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from opbridge.cli._options import Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.errors import InputError

if TYPE_CHECKING:
    from opbridge.surgery.edited import Edited

__all__ = ["add_surgery", "names", "pairs", "plain", "written"]


def add_surgery(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace, Callable[[str], None]], Outcome],
    *,
    help: str,
    models: Mapping[str, str] = MappingProxyType({"model": "the model"}),
) -> argparse.ArgumentParser:
    """Add a command that reads models and writes one. ``models``: the help of each model's argument."""
    parser = add_command(commands, name, run, help=help)
    for model, meaning in models.items():
        parser.add_argument(model, metavar=f"{model.upper()}.onnx", help=f"{meaning}; the file is not changed")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.onnx", help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="overwrite an existing file")
    parser.add_argument(
        "--external-data",
        action="store_const",
        const=True,
        help="store the weights in a separate file (default: only above 2 GB)",
    )
    return parser


def written(arguments: argparse.Namespace, progress: Callable[[str], None], change: Callable[[], Edited]) -> Outcome:
    """Change a model, write the result, and list the changes."""
    from opbridge.report.surgery import edited_view

    output = Path(arguments.output)
    if output.exists() and not arguments.overwrite:
        raise InputError(f"{arguments.output!r} exists already.", fix="choose another name, or add --overwrite.")
    progress("changing the model")
    edited = change()
    progress(f"writing {output.name}")
    edited.save(output, external_data=arguments.external_data, overwrite=arguments.overwrite)
    return Outcome({**edited.to_dict(), "path": str(output)}, edited_view)


def names(text: str) -> list[str]:
    """Parse ``a,b`` into a list, for argparse."""
    return [name.strip() for name in text.split(",") if name.strip()]


def pairs(items: Sequence[str], example: str) -> dict[str, str]:
    """Parse items such as ``["a=b"]`` into a mapping.

    Raises:
        InputError: An item has no ``=``.
    """
    found = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise InputError(f"{item!r} is not of the form {example}.", fix=f"write, for example, {example}.")
        found[key] = value
    return found


def plain(text: str) -> Any:
    """Parse the value of an attribute as JSON; text that is not valid JSON is returned unchanged."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
