"""Whether a captured program computes what its module does, at sizes that its conditions exclude too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opbridge.torch_graph.compared_numbers import compared_numbers, filled
from opbridge.torch_graph.eager import run_eager
from opbridge.torch_graph.silence import silenced

__all__ = ["Numbers", "Runnable", "computes", "eager_results", "is_right", "numbers_for"]


def eager_results(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """The flattened outputs of the module; None if it does not accept the inputs."""
    try:
        with silenced():
            return run_eager(module, args, kwargs)
    except Exception:
        return None


class Runnable:
    """A captured program without its conditions on sizes."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        self._module: torch.nn.Module | None = None

    def results(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """The flattened outputs; None if it fails."""
        # One with state begins with the state that was captured.
        if self._module is None or self._program.graph_signature.buffers_to_mutate:
            self._module = self._program.module(check_guards=False)
            # Otherwise they refuse sizes outside the range that torch.export concluded from its conditions.
            self._module._forward_pre_hooks.clear()
        return eager_results(self._module, args, kwargs)


def is_right(
    module: torch.nn.Module,
    program: Runnable,
    example: tuple[tuple[Any, ...], dict[str, Any]],
    moved: tuple[tuple[Any, ...], dict[str, Any]],
    expected: Sequence[Any],
    numbers: Sequence[Numbers],
) -> bool:
    """Whether the program computes what the module does at sizes that some guards exclude.

    Two branches may give equal results for the example and differ for other numbers.

    Args:
        module: The user's module.
        program: The captured program.
        example: The example inputs.
        moved: The example inputs at these sizes.
        expected: The module's results for them.
        numbers: The random numbers that are tried too.
    """
    if not computes(module, program, example, moved, expected):
        return False
    generator = torch.Generator().manual_seed(0)
    for one in numbers:
        at_example, others = (one.drawn(values, generator) for values in (example, moved))
        found = eager_results(module, *others)
        if found is None or computes(module, program, at_example, others, found):
            continue
        # Otherwise it can't be judged with such numbers.
        results = eager_results(module, *at_example)
        if results is None or computes(module, program, at_example, at_example, results):
            return False
    return True


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Random numbers with which two branches are compared.

    Attributes:
        largest: Their scale: the standard deviation, or for integers the largest.
        integers: Whether integer tensors get them, instead of floating-point tensors.
        uniform: Whether they are between 0 and ``largest``.
        constant: Whether all of them are ``largest``.
    """

    largest: float
    integers: bool = False
    uniform: bool = False
    constant: bool = False

    def are_for(self, dtype: torch.dtype) -> bool:
        """Whether tensors of this type get them."""
        return dtype.is_floating_point != self.integers and dtype is not torch.bool and not dtype.is_complex

    def drawn(self, values: Any, generator: torch.Generator) -> Any:
        """The arguments with these numbers in their tensors."""

        def draw(value: Any) -> Any:
            if not (isinstance(value, torch.Tensor) and self.are_for(value.dtype)):
                return value
            if self.constant:
                return filled(value, self.largest)
            some = (torch.rand if self.uniform else torch.randn)(value.shape, generator=generator)
            return (self.largest * some.clamp(-1, 1) if self.integers else self.largest * some).to(value.dtype)

        return torch.utils._pytree.tree_map(draw, values)


_NUMBERS = (
    Numbers(1.0, uniform=True),
    Numbers(1e-3),
    Numbers(1.0),
    Numbers(1e3),
    Numbers(100.0, integers=True, uniform=True),
    Numbers(1e5, integers=True),
)


def numbers_for(
    example: tuple[tuple[Any, ...], dict[str, Any]], program: torch.export.ExportedProgram | None
) -> list[Numbers]:
    """The kinds of numbers that tensors of the example can have: random ones, and those that the program compares."""
    types = {leaf.dtype for leaf in torch.utils._pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor)}
    compared = () if program is None else compared_numbers(program.graph_module)
    own = (Numbers(one, integers, constant=True) for one in compared for integers in (False, True))
    return [one for one in (*_NUMBERS, *own) if any(map(one.are_for, types))]


def computes(
    module: torch.nn.Module,
    program: Runnable,
    example: tuple[tuple[Any, ...], dict[str, Any]],
    moved: tuple[tuple[Any, ...], dict[str, Any]],
    expected: Sequence[Any],
) -> bool:
    """Whether the program, without its conditions on sizes, computes the module's results at other sizes.

    Roundings may differ, because functions are replaced in a capture, but not much more than at the sizes of the
    example, at which the program is right.
    """
    differences = _differences(program, moved, expected)
    limits = [_limit(one) for one in expected]
    if all(difference <= limit for difference, limit in zip(differences, limits, strict=True)):
        return True
    at_example = eager_results(module, *example)
    if at_example is None or len(at_example) != len(expected):
        return False
    roundings = _differences(program, example, at_example)
    return all(
        difference <= max(limit, _MORE * rounding) and rounding <= _MOST_ROUNDING
        for difference, limit, rounding in zip(differences, limits, roundings, strict=True)
    )


_ROUNDING, _MOST_ROUNDING, _MORE = 1e-5, 1e-3, 16
"""What is always a rounding, the largest difference that may be one, and how many times the example's is allowed."""


def _differences(
    program: Runnable, example: tuple[tuple[Any, ...], dict[str, Any]], expected: Sequence[Any]
) -> list[float]:
    """How far each output of the program is from the expected one, relative to the largest element of that."""
    found = program.results(*example)
    if found is None or len(found) != len(expected):
        return [math.inf] * len(expected)
    return list(map(_difference, found, expected))


def _difference(one: Any, other: Any) -> float:
    if isinstance(one, torch.Tensor) and isinstance(other, (int, float)):  # The program returns a tensor for it.
        other = torch.tensor(other, dtype=one.dtype)
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return 0.0 if one == other else math.inf
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if not (one.is_floating_point() or one.is_complex()):
        return 0.0 if torch.equal(one, other) else math.inf
    finite = other.isfinite()
    if not torch.allclose(one.masked_fill(finite, 0), other.masked_fill(finite, 0), equal_nan=True):
        return math.inf
    largest = other[finite].abs().max().item() if finite.any() else 0.0
    difference = (one - other)[finite].abs().max().item() if finite.any() else 0.0
    return difference / largest if largest else difference


def _limit(result: Any) -> float:
    """The difference that is a rounding."""
    if isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex()):
        return max(_ROUNDING, 4 * torch.finfo(result.dtype).eps)
    return _ROUNDING if isinstance(result, float) else 0.0
