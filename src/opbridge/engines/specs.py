"""A small file with the inputs and outputs of a model whose own format does not describe them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from opbridge.engines.base import TensorSpec
from opbridge.errors import InputError

__all__ = ["read_specs", "write_specs"]


def write_specs(path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Write the specifications as JSON."""
    data = {"inputs": [spec.to_dict() for spec in inputs], "outputs": [spec.to_dict() for spec in outputs]}
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def read_specs(path: Path) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs and the outputs that :func:`write_specs` wrote.

    Raises:
        InputError: The file is missing or damaged.
    """
    try:
        data = json.loads(path.read_bytes())
        inputs, outputs = (
            tuple(TensorSpec(item["name"], item["dtype"], tuple(item["shape"])) for item in data[kind])
            for kind in ("inputs", "outputs")
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path.name}, which describes the model's inputs and outputs, is missing or damaged: {error}.",
            fix="keep the files of the bundle together, or export it again.",
        ) from error
    return inputs, outputs
