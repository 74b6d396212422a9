"""``opbridge convert-opset``: convert an ONNX model to another opset."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opbridge.cli._options import ONNX, Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge convert-opset build/head/model.onnx --opset 13 -o build/head13.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "convert-opset", _run, help="convert an ONNX model to another opset, up or down")
    parser.add_argument("model", metavar="MODEL.onnx", help="the model file")
    parser.add_argument("--opset", type=int, required=True, metavar="N", help="the opset, from 11 to the newest")
    parser.add_argument(
        "--ir-version", type=int, metavar="V", help="the IR version (default: the one the opset requires)"
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT.onnx", help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="overwrite an existing file")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.convert_opset import convert_opset

    progress(f"converting {arguments.model}")
    edited = convert_opset(arguments.model, arguments.opset, ir_version=arguments.ir_version)
    progress(f"writing {arguments.output}")
    path = edited.save(arguments.output, overwrite=arguments.overwrite)
    data = {
        "path": str(path),
        "opset": arguments.opset,
        "ir_version": edited.model.ir_version,
        **edited.to_dict(),
    }
    return Outcome(data, _view)


def _view(data: Mapping[str, Any]) -> Iterator[str]:
    for change in data["changes"]:
        yield f"{change['what']} ({len(change['where'])})"
    yield f"{data['path']}: opset {data['opset']}, IR version {data['ir_version']}"
