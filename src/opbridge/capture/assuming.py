"""Captures for the example inputs what can't be captured otherwise: the branches that they take, and their sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import torch

from opbridge.capture.assumption import Assumption
from opbridge.capture.export import Example, declared_by
from opbridge.capture.failures import CaptureFailure
from opbridge.findings import Finding, control_flow, data_dependent_value, missing_fake
from opbridge.torch_graph.declared import fixed_at
from opbridge.torch_graph.dimensions import arguments_by_name
from opbridge.torch_graph.example_values import Frames, assuming_values, taking_branches
from opbridge.torch_graph.sources import AssumedValue, innermost
from opbridge.torch_graph.state import keeping_state
from opbridge.torch_graph.statements import tested_at

__all__ = ["Assumptions"]


class Assumptions:
    """The assumptions of one capture, which is repeated with one more after each failure.

    Args:
        module: The module.
        example: The arguments and the keyword arguments.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``.
    """

    def __init__(self, module: torch.nn.Module, example: Example, dynamic_shapes: Any) -> None:
        self._module = module
        self._example = example
        self._dynamic_shapes = dynamic_shapes
        self._sizes: dict[str, Assumption] = {}
        self._reads_values = False
        self._takes_branches = False
        self._values: list[AssumedValue] = []
        self._without_fake: dict[str, Frames] = {}
        self._failures: list[CaptureFailure] = []

    def extend(self, failure: CaptureFailure) -> bool:
        """Assume what this failure needs: sizes, values of tensors, branches, or all sizes.

        Returns:
            False if there is nothing more to assume.
        """
        if failure.axes:
            possible = self._fix(failure, failure.axes)
        elif failure.finding.code == control_flow.CODE:
            possible, self._takes_branches = not self._takes_branches, True
        else:
            possible = not self._reads_values
        self._reads_values = self._reads_values or not failure.axes
        possible = possible or self._fix(failure)
        self._failures += [failure] if possible else []
        return possible

    def _fix(self, failure: CaptureFailure, axes: Sequence[str] | None = None) -> bool:
        """Fix the dynamic dimensions on these axes, or all of them."""
        found = False
        places = [str(line) for line in failure.lines] or failure.finding.sources
        for dimension in declared_by(self._module, self._example, self._dynamic_shapes).dimensions:
            sources = [place.source for place, _ in dimension.places]
            if (axes is not None and not set(sources) & set(axes)) or set(sources) <= set(self._sizes):
                continue
            assumption = Assumption("size", dimension.name, str(dimension.size), _place(places[-1] if places else ""))
            self._sizes.update(dict.fromkeys(sources, assumption))
            found = True
        return found

    @contextlib.contextmanager
    def made(self) -> Iterator[Any]:
        """Capture under the assumptions inside the block; gives the dimensions that are dynamic."""
        self._values.clear()
        self._without_fake.clear()
        shapes = self._dynamic_shapes
        if self._sizes:
            shapes = fixed_at(arguments_by_name(self._module, *self._example), shapes, self._sizes)
        with contextlib.ExitStack() as stack:
            if self._reads_values:
                stack.enter_context(keeping_state(self._module))
                stack.enter_context(assuming_values(self._values, self._without_fake))
            if self._takes_branches:
                stack.enter_context(taking_branches(self._values))
            yield shapes

    def obstacles(self) -> tuple[Finding, ...]:
        """What stops a capture without assumptions: one finding for each size, line, and operator without a fake."""
        places = dict.fromkeys(
            (innermost(value.frames, libraries=True), innermost(value.frames))
            for value in self._values
            if not value.is_branch
        )
        refused = {failure.finding.sources for failure in self._failures if failure.finding.code == control_flow.CODE}
        lines = [found for place in places if (found := data_dependent_value.finding(*place)).sources not in refused]
        fakes = [
            missing_fake.finding(target, innermost(frames, libraries=True), innermost(frames))
            for target, frames in self._without_fake.items()
        ]
        known = {found.message for found in (*lines, *fakes)}
        return (*(one.finding for one in self._failures if one.finding.message not in known), *lines, *fakes)

    def listed(self) -> tuple[Assumption, ...]:
        """The assumptions of the last capture, those about sizes first."""
        return tuple(dict.fromkeys([*self._sizes.values(), *_of_lines(self._values)]))


def _of_lines(values: list[AssumedValue]) -> Iterator[Assumption]:
    """One assumption for each line that reads values."""
    lines = {value: innermost(value.frames) for value in values}
    for line in dict.fromkeys(lines.values()):
        found = list(dict.fromkeys(_shown(value.value) for value in values if lines[value] == line))
        tested, is_one = tested_at(line) or (line.text if line is not None else values[0].condition, True)
        yield Assumption("value", tested, found[0] if is_one and len(found) == 1 else "", _place(str(line or "")))


def _shown(value: str) -> str:
    """A number of torch without trailing zeros: ``"12"`` for ``"12.0000000000000"``."""
    try:
        return f"{float(value):.10g}"
    except ValueError:
        return value


def _place(place: str) -> str:
    """The line without the folder of a file outside the current folder, for the manifest has no absolute paths."""
    return PurePath(place).name if PurePath(place).is_absolute() else place
