"""Checks the shape functions of a model's kernels against the shapes in the captured program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from opbridge.errors import EngineError, InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.kernels.library import KernelLibrary, KernelOperator
from opbridge.ladder.build import Built

__all__ = ["check_kernel_shapes"]


def check_kernel_shapes(program: torch.export.ExportedProgram, built: Iterable[Built]) -> None:
    """Check each kernel's shape function on every call in the program, at the sizes of the example inputs.

    Data-dependent sizes, and calls that no kernel supports, are left to the verification.

    Args:
        program: The captured program; its shapes come from the fake implementations of the operators.
        built: The built libraries of kernels.

    Raises:
        InputError: A shape function returns another element type or other sizes than the fake implementation.
    """
    libraries = [library.library for library in built]
    for node in _calls(program):
        for library in libraries:
            for operator in library.operators:
                if operator.target == node.target.name().partition(".")[0]:  # type: ignore[union-attr]
                    _check(node, library, operator)


def _calls(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if isinstance(node.target, torch._ops.OpOverload))


def _check(node: torch.fx.Node, library: KernelLibrary, operator: KernelOperator) -> None:
    arrays, attributes = _arguments(node, operator)
    variant = operator.find_variant([None if array is None else array.dtype.name for array in arrays])
    fakes = [fake for fake in torch.utils._pytree.tree_leaves(node.meta["val"]) if isinstance(fake, torch.Tensor)]
    if variant is None:
        return
    try:
        shapes = library.shapes(operator.target, arrays, attributes, output_count=len(fakes))
    except (EngineError, InputError):
        # The shape function may reject zeros; a real error appears when the engine runs.
        return
    dtypes = operator.output_dtypes(variant)
    for index, (fake, sizes) in enumerate(zip(fakes, shapes, strict=False)):
        says = _described(dtypes[min(index, len(dtypes) - 1)], sizes)
        expected = tuple(_known(size) for size in fake.shape)
        agrees = len(sizes) == len(expected) and all(
            ours is None or theirs is None or ours == theirs for ours, theirs in zip(sizes, expected, strict=True)
        )
        if not agrees or _dtype(fake) != dtypes[min(index, len(dtypes) - 1)]:
            given = ", ".join(_described(array.dtype.name, array.shape) for array in arrays if array is not None)
            raise InputError(
                f"The shape function of the kernel of {operator.target} disagrees with the operator's fake: of {given} "
                f"it makes output {index} {says}, and the fake {_described(_dtype(fake), expected)}.",
                fix="correct the kernel's shape function (the second argument of OPBRIDGE_OPERATOR) or its schema; or "
                "the Python side, if that is wrong. `opbridge test-op` checks both on the samples.",
            )


def _arguments(node: torch.fx.Node, operator: KernelOperator) -> tuple[list[np.ndarray | None], dict[str, Any]]:
    """The kernel's inputs, as zeros that use no memory, and its attributes."""
    given: dict[str, Any] = {}
    schema: Any = node.target._schema  # type: ignore[union-attr]
    for position, argument in enumerate(schema.arguments):
        if position < len(node.args):
            given[argument.name] = node.args[position]
        else:
            given[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    arrays: list[np.ndarray | None] = []
    for declared in operator.inputs:
        value = given.pop(declared.name, None)
        arrays += [_array(item) for item in value] if isinstance(value, (list, tuple)) else [_array(value)]
    attributes = {
        attribute.name: float(given[attribute.name]) if attribute.kind == "float" else given[attribute.name]
        for attribute in operator.attributes
        if given.get(attribute.name) is not None
    }
    return arrays, attributes


def _array(value: Any) -> np.ndarray | None:
    value = value.meta["val"] if isinstance(value, torch.fx.Node) else value
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        return np.array(_known(value) or 0)
    sizes = tuple(1 if size is None else size for size in map(_known, value.shape))
    return np.broadcast_to(np.zeros((), numpy_dtype(_dtype(value))), sizes)


def _known(size: Any) -> int | None:
    """The size in the example; None for a data-dependent size."""
    node = getattr(size, "node", None)
    if node is None:
        return int(size)
    return int(node.hint) if node.has_hint() else None


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _described(dtype: str, sizes: Iterable[int | None]) -> str:
    written = ", ".join("?" if size is None else str(size) for size in sizes)
    return f"{dtype} of shape ({written})"
