"""Calls ``torch.export`` with the settings and replacements under which a dynamic size stays dynamic."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from opbridge.capture.declared_sizes import at_least_two, check_declared_sizes, is_right_at_one
from opbridge.capture.failures import CaptureFailure, explain_capture_failure
from opbridge.errors import CaptureError
from opbridge.findings import dynamic_dimension
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.cached_functions import forgetting_results
from opbridge.torch_graph.declared import DeclaredDimensions, declared_dimensions
from opbridge.torch_graph.dimensions import arguments_by_name, chosen_by_torch, declared_sizes, from_two, without_names
from opbridge.torch_graph.gradients import needs_gradients, without_gradient_modes
from opbridge.torch_graph.imported import importing_outside
from opbridge.torch_graph.open_masks import leave_out_open_masks
from opbridge.torch_graph.outputs import opening_outputs
from opbridge.torch_graph.python_sizes import dynamic_builtins, einsum_from_left_to_right
from opbridge.torch_graph.silence import silenced
from opbridge.torch_graph.size_guards import SizeGuard
from opbridge.torch_graph.sources import FixedSize, SourceLine, innermost
from opbridge.torch_graph.squeezes import keep_dynamic_sizes
from opbridge.torch_graph.state import keeping_state

__all__ = ["Example", "declared_by", "export_program"]

Example = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments and the keyword arguments."""


def export_program(
    module: torch.nn.Module, example: Example, dynamic_shapes: Any, check_sizes: bool = True
) -> tuple[torch.export.ExportedProgram, Example, list[SizeGuard]]:
    """The program, the example inputs that it was captured with, and the guards on their dynamic sizes.

    Args:
        module: The module.
        example: Its example inputs.
        dynamic_shapes: The dynamic dimensions.
        check_sizes: Whether a declared size that the module accepts and the program would not is an error.
    """
    guards: list[SizeGuard] = []
    if not dynamic_shapes:
        return _export(module, example, dynamic_shapes, guards, check_sizes), example, guards
    example = _distinct(example)
    larger = at_least_two(example, declared_by(module, example, dynamic_shapes))
    if larger is not example:
        try:
            return _export(module, larger, dynamic_shapes, guards, check_sizes), larger, guards
        except CaptureError as error:
            with contextlib.suppress(CaptureError):
                guards.clear()
                return _export(module, example, dynamic_shapes, guards, check_sizes), example, guards
            raise error
    return _export(module, example, dynamic_shapes, guards, check_sizes), example, guards


def _distinct(example: Example) -> Example:
    """The example inputs, in which no tensor object occurs twice."""
    seen: set[int] = set()

    def own(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach() if id(tensor) in seen else tensor
        seen.add(id(tensor))
        return tensor

    distinct: Example = torch.utils._pytree.tree_map_only(torch.Tensor, own, example)
    return distinct


def declared_by(module: torch.nn.Module, example: Example, dynamic_shapes: Any) -> DeclaredDimensions:
    """What is declared for these inputs; nothing if the inputs do not fit, which torch.export reports."""
    try:
        arguments = arguments_by_name(module, *example)
    except TypeError:
        arguments = {}
    return declared_dimensions(arguments, dynamic_shapes)


def _export(
    module: torch.nn.Module, example: Example, dynamic_shapes: Any, guards: list[SizeGuard], check_sizes: bool
) -> torch.export.ExportedProgram:
    """Export the module; if it restricts a size, for a smaller range.

    No smaller range can be right if eager PyTorch accepts a size from 2 up that a condition excludes. Otherwise a size
    from 2 up is tried first, because the model may distinguish the size 1. Then torch.export chooses a part of the
    declared range. Its conditions are in ``guards``, so that eager PyTorch judges whether other sizes are legal.
    A dimension that was declared from 1 may be captured from 2 if the program is right for the size 1 too.
    """
    shapes = without_names(dynamic_shapes)
    declared = declared_by(module, example, dynamic_shapes)
    try:
        with declared.stated_by(module, example):
            return _export_as_declared(module, example, shapes, guards)
    except CaptureFailure as failure:
        if failure.finding.code == dynamic_dimension.CODE:
            if check_sizes and not failure.fixes_sizes:
                check_declared_sizes(module, None, example, declared, guards)
            restricted = {
                one.name for one in declared.dimensions if any(place.source in failure.axes for place, _ in one.places)
            }
            for smaller, is_valid in _smaller_ranges(shapes, declared, restricted):
                guards.clear()
                try:
                    program = _export_as_declared(module, example, smaller, guards)
                    if is_valid(module, program, example, declared):
                        return _from_one(program, shapes, arguments_by_name(module, *example))
                except CaptureError as error:
                    if needs_gradients(error.__cause__):  # The capture after this one has them.
                        raise
        raise


def _smaller_ranges(
    shapes: Any, declared: DeclaredDimensions, restricted: Collection[str]
) -> Iterator[tuple[Any, Callable[..., bool]]]:
    """Ranges without the sizes 0 and 1, and then those that torch.export chooses for the restricted dimensions.

    Yields:
        The dynamic shapes, and whether a program that was captured with them is valid for the sizes that they leave out
        and that were declared: a function of the arguments of :func:`is_right_at_one`.
    """
    lows = {one.low for one in declared.dimensions if one.name in restricted}
    if lows != {1}:
        shorter = from_two(shapes)
        for smaller in (shorter, chosen_by_torch(shorter, restricted)):
            yield smaller, lambda *_: True
    if 1 in lows:
        shorter = from_two(shapes, declared=1)
        for smaller in (shorter, chosen_by_torch(shorter, restricted)):
            yield smaller, is_right_at_one


def _from_one(
    program: torch.export.ExportedProgram, dynamic_shapes: Any, arguments: dict[str, Any]
) -> torch.export.ExportedProgram:
    """The program, with the sizes from 1 where they were declared."""
    ranges = program.range_constraints
    for _, size, dimension in declared_sizes(program, dynamic_shapes, arguments):
        is_named = isinstance(size, torch.SymInt) and isinstance(dimension, torch.export.Dim)
        if is_named and dimension.min == 1 and size.node.expr in ranges:
            limits = ranges[size.node.expr]
            ranges[size.node.expr] = type(limits)(1, limits.upper)
    return program


def _export_as_declared(
    module: torch.nn.Module, example: Example, shapes: Any, guards: list[SizeGuard]
) -> torch.export.ExportedProgram:
    args, kwargs = example
    fixed: list[FixedSize] = []
    try:
        settings = torch_internals.capturing(shapes)
        state = keeping_state(module, contents_of_buffers=False)
        noting = torch_internals.noting_sizes(fixed, guards)
        order = einsum_from_left_to_right() if shapes else contextlib.nullcontext()
        replacements = opening_outputs(module), dynamic_builtins(), without_gradient_modes(), importing_outside()
        forgetting = forgetting_results(module)
        with contextlib.ExitStack() as stack:
            for context in (forgetting, state, silenced(), settings, noting, torch.no_grad(), *replacements, order):
                stack.enter_context(context)
            program = torch.export.export(module, args, kwargs or None, dynamic_shapes=shapes, strict=False)
        guards += keep_dynamic_sizes(program)
        leave_out_open_masks(program)
        return program
    except Exception as error:
        with keeping_state(module):
            explained = explain_capture_failure(error, module, args, kwargs, dynamic_shapes=shapes, fixed_sizes=fixed)
        if isinstance(explained, CaptureFailure) and not explained.lines:
            if explained.finding.code == dynamic_dimension.CODE and not explained.axes:
                every = (axis for guard in guards for sources in guard.symbols.values() for axis in sources)
                explained.axes = tuple(dict.fromkeys(every))
            explained.lines = tuple(_restricting(guards, explained.axes))
        raise explained from error


def _restricting(guards: Sequence[SizeGuard], axes: Sequence[str]) -> Iterator[SourceLine]:
    """The lines outside torch whose conditions restrict these axes."""
    for guard in guards:
        line = innermost(guard.frames, libraries=True)
        if line is not None and any(axis in sources for axis in axes for sources in guard.symbols.values()):
            yield line
