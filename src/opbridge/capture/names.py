"""The names of a captured program's inputs and outputs in the ONNX model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from opbridge.errors import InputError
from opbridge.torch_graph.signature import user_inputs, user_outputs

__all__ = ["input_names", "output_names"]


def input_names(program: torch.export.ExportedProgram, given: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the flattened inputs: the given ones, or those of the parameters.

    Raises:
        InputError: The number of names is wrong, or a name occurs twice.
    """
    names = user_inputs(program)
    return _checked(given, names, "input") if given is not None else tuple(names)


def output_names(
    program: torch.export.ExportedProgram, given: Sequence[str] | None, inputs: Sequence[str]
) -> tuple[str, ...]:
    """The names of the flattened outputs: the given ones, or the keys of a dict output, or "output".

    Raises:
        InputError: The number of names is wrong, a name occurs twice, or it is the name of an input.
    """
    positions = user_outputs(program)
    names = _default_output_names(program, positions)
    if given is not None:
        names = list(_checked(given, names, "output"))
        clash = sorted(set(names) & set(inputs))
        if clash:
            raise InputError(
                f"output_names: {clash[0]!r} is the name of an input as well.", fix="give the output another name."
            )
    return tuple(f"{name}_out" if name in inputs else name for name in names)


def _default_output_names(program: torch.export.ExportedProgram, positions: Sequence[int]) -> list[str]:
    """The keys of a dict or dataclass output, otherwise output or output_0, output_1, ..."""
    tree = program.call_spec.out_spec
    paths: list[Any] = [()] * (max(positions, default=-1) + 1)
    if tree is not None:
        leaves = torch.utils._pytree.tree_unflatten(list(range(tree.num_leaves)), tree)
        try:
            named = torch.utils._pytree.tree_flatten_with_path(leaves)[0]
        except ValueError:  # A class is registered with torch without the names of its parts.
            named = [((torch.utils._pytree.SequenceKey(leaf),), leaf) for leaf in range(tree.num_leaves)]
        for path, leaf in named:
            if leaf < len(paths):
                paths[leaf] = path
    names = []
    for position in positions:
        words = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in paths[position]]
        text = re.sub(r"\W+", "_", "_".join(words))
        names.append(text if text and not text[0].isdigit() else f"output_{text}".rstrip("_"))
    return names


def _checked(given: Sequence[str], expected: Sequence[str], kind: str) -> tuple[str, ...]:
    if len(given) != len(expected):
        raise InputError(
            f"{kind}_names has {len(given)} names, but the model has {len(expected)} {kind}s: {', '.join(expected)}.",
            fix=f"give {len(expected)} names, in this order.",
        )
    repeated = sorted({name for name in given if list(given).count(name) > 1})
    if repeated:
        raise InputError(f"{kind}_names: {repeated[0]!r} appears twice.", fix=f"give every {kind} a name of its own.")
    return tuple(given)
