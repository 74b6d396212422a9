"""Converts ``dynamic_axes`` (labels by input name) to ``dynamic_shapes`` (dimensions by argument)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from opbridge.errors import InputError
from opbridge.torch_graph.dimensions import arguments_by_name, declared_sizes

__all__ = ["AxisNames", "axis_names", "label_dimensions"]

AxisNames = Mapping[str, Mapping[int, str]]


def axis_names(dynamic_axes: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """Return ``dynamic_axes`` with a label for each axis; axes in a list get the labels of the old exporter."""
    full: dict[str, dict[int, str]] = {}
    for name, axes in dynamic_axes.items():
        if isinstance(axes, Mapping):
            full[name] = {int(axis): str(label) for axis, label in axes.items()}
        else:
            full[name] = {int(axis): f"{name}_dynamic_axes_{i}" for i, axis in enumerate(axes, 1)}
    return full


def shapes_by_argument(
    axes: AxisNames,
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the axes by argument, as ``dynamic_shapes`` of torch.export and with their labels.

    torch decides whether such a dimension can be dynamic, because for the old exporter the axes were only labels.

    Raises:
        InputError: A name is neither an input nor an output, or an axis is out of range.
    """
    leaves, structure = tree_flatten((tuple(args), dict(kwargs)))
    own = [name for name, value in arguments_by_name(module, args, kwargs).items() for _ in tree_flatten(value)[0]]
    tensors = [position for position, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    named = {position: name for name, position in zip(input_names, tensors, strict=False)}
    names = [named.get(i, own[i] if i < len(own) else "") for i in range(len(leaves))]
    unknown = [name for name in axes if name not in names and name not in output_names]
    if unknown:
        raise InputError(
            f"dynamic_axes: {unknown[0]!r} is neither an input nor an output; the names are "
            f"{', '.join([*dict.fromkeys(filter(None, names)), *output_names])}.",
            fix="correct the name, or set the names with input_names and output_names.",
        )
    labels = [_axes_of(leaf, names[i], axes) for i, leaf in enumerate(leaves)]
    dimensions = [
        None if own is None else dict.fromkeys(own, torch.export.Dim.AUTO)  # type: ignore[attr-defined]
        for own in labels
    ]
    return tuple(  # type: ignore[return-value]
        arguments_by_name(module, *tree_unflatten(specification, structure)) for specification in (dimensions, labels)
    )


def _axes_of(value: Any, name: str, axes: AxisNames) -> dict[int, str] | None:
    if not isinstance(value, torch.Tensor):
        return None
    found: dict[int, str] = {}
    for axis, label in axes.get(name, {}).items():
        if not -value.dim() <= axis < value.dim():
            raise InputError(
                f"dynamic_axes: axis {axis} of {name!r} is out of range: it has {value.dim()} dimensions.",
                fix="number the axes from 0.",
            )
        found[axis % value.dim()] = label
    return found or None


def label_dimensions(
    program: torch.export.ExportedProgram, labels: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Return the label of each symbol of the program, and descriptions of the labelled dimensions that are static.

    Several dimensions may have the same label, as in the old exporter.
    """
    names: dict[str, str] = {}
    fixed: list[str] = []
    for name, size, label in declared_sizes(program, labels, arguments):
        if str(size).isidentifier():
            names.setdefault(str(size), str(label))
        elif str(size).isdigit():
            fixed.append(f"{label!r} of {name!r} (always {size})")
    return names, fixed
