"""``opbridge convert-dtype``: convert a model to float16 and keep float32 where it is needed."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands, add_engine
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, written

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge convert-dtype build/vit/model.onnx float16 --keep-io -o build/half.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(
        commands,
        "convert-dtype",
        _run,
        help="convert a model to float16; nodes whose results would be too inaccurate stay in float32",
    )
    parser.add_argument("dtype", choices=("float16", "bfloat16"), help="the target type")
    parser.add_argument("--keep-io", action="store_true", help="keep the types of inputs and outputs")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.01,
        metavar="X",
        help="the largest relative error of the outputs (default: 0.01)",
    )
    parser.add_argument("--inputs", nargs="+", metavar="FILE.npz", help="inputs by name, one file per case")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of random inputs")
    add_engine(parser, default="onnxruntime", several=False)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import read_arrays
    from opbridge.surgery.verbs.convert_dtype import convert_dtype

    inputs = None if arguments.inputs is None else [read_arrays([file]) for file in arguments.inputs]
    return written(
        arguments,
        progress,
        lambda: convert_dtype(
            arguments.model,
            arguments.dtype,
            keep_io=arguments.keep_io,
            tolerance=arguments.tolerance,
            inputs=inputs,
            engine=arguments.engine,
            seed=arguments.seed,
        ),
    )
