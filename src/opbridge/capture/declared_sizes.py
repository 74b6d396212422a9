"""Checks that a captured program is valid at every size that was declared and that eager PyTorch accepts.

torch.export records a condition for each size that the model compares, converts to a Python number or divides by. The
program is valid only where all conditions hold, and torch reports a condition only if it specializes a size to one
number. The judge of the other conditions is eager PyTorch: if it accepts a declared size at which a condition fails,
the model is not dynamic as declared. If it refuses the size too, the condition is a property of the model.

A condition such as ``n // 160 != 1`` or ``n // 16 == 2 * (n // 32)`` mostly comes from an operator of torch, which asks
whether a computed size broadcasts. It is no restriction if the captured program computes at that size what eager
PyTorch computes; for a condition in Python, random numbers of several magnitudes are compared too.

The example may be the special case: ``x[:, : n // 2 * 2].reshape(-1, 2)`` is a view of an even ``n``, and a copy of any
other; a U-Net tells its upsampling the size where ``height % 8 != 0``. A program that was captured with another size
may then be right for both.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from opbridge.capture.agreement import Runnable, computes, eager_results, is_right, numbers_for
from opbridge.capture.failures import CaptureFailure
from opbridge.errors import CaptureError
from opbridge.findings import restricted_dimension
from opbridge.torch_graph.declared import SMALLEST, DeclaredDimensions, DynamicDimension
from opbridge.torch_graph.size_guards import SizeGuard
from opbridge.torch_graph.sources import innermost

__all__ = ["at_least_two", "check_declared_sizes", "is_right_at_one"]

_STEPS = (1, 2, 3, 4, 8, 16, 32, 64)
_MOST_SECONDS = 60.0
_MOST_ELEMENTS = 2**22
_MOST_TIMES_THE_EXAMPLE = 4
_MOST_COMBINATIONS = 64
_MULTIPLES = (2, 3, 4, 6, 8, 12)


def at_least_two(example: Any, declared: DeclaredDimensions) -> Any:
    """The example inputs with every dynamic dimension at a size of at least 2; the same object if it was before."""
    sizes: dict[str, int] = {}
    for dimension in declared.dimensions:
        if not dimension.is_number and dimension.size < SMALLEST and (dimension.high or SMALLEST) >= SMALLEST:
            sizes |= dimension.sizes_at(max(SMALLEST, dimension.low))
    return declared.resized(example, sizes) if sizes else example


def check_declared_sizes(
    module: torch.nn.Module,
    program: torch.export.ExportedProgram | None,
    example: tuple[tuple[Any, ...], dict[str, Any]],
    declared: DeclaredDimensions,
    guards: Sequence[SizeGuard],
) -> tuple[str, ...]:
    """Look for a declared size that eager PyTorch accepts and a guard excludes.

    The module runs only at sizes that a guard excludes, so for most models it does not run at all.

    Args:
        module: The user's module.
        program: The captured program; None if torch.export has refused the declared range because of the guards. Then
            only guards that restrict each range are checked.
        example: The arguments and the keyword arguments.
        declared: What is declared for them.
        guards: The conditions of the captured program.

    Returns:
        The lines of conditions in Python that were not reached within the time limit.

    Raises:
        CaptureError: There is such a size; the message names the guard and its line.
    """
    if program is None:
        guards = [guard for guard in guards if not guard.is_inequality()]
    base = {place.source: place.size for place in declared.places}
    largest = max(_MOST_ELEMENTS, _MOST_TIMES_THE_EXAMPLE * declared.elements(example, {}))
    started = time.perf_counter()
    alone = [[(dimension, size)] for dimension in declared.dimensions for size in _candidates(dimension, guards)]
    tried: list[dict[str, int]] = []
    kinds = numbers_for(example, program)
    turns = itertools.cycle(kinds)
    tried_with_all: set[Any] = set()
    runnable = None if program is None else Runnable(program)
    together = _together(declared.dimensions, guards)
    for chosen in itertools.chain(alone, together, _of_conditions(declared.dimensions, guards, base)):
        sizes = {source: size for one, number in chosen for source, size in one.sizes_at(number).items()}
        if sizes in tried:
            continue
        tried.append(sizes)
        failing = [guard for guard in guards if guard.fails({**base, **sizes})]
        if time.perf_counter() - started > _MOST_SECONDS:
            return _lines([one for one in guards if not (one.is_asked_by_torch() or one.condition in tried_with_all)])
        if not failing:
            continue
        if declared.elements(example, sizes) > largest:
            continue
        moved = declared.resized(example, sizes)
        if (expected := eager_results(module, *moved)) is None:
            continue
        asked = {guard.condition for guard in failing if not guard.is_asked_by_torch()}
        # All numbers for each new condition, and where a second one may follow it; elsewhere they take turns.
        is_new = len(chosen) > 1 or not asked <= tried_with_all
        numbers = [] if not (asked and kinds) else kinds if is_new else [next(turns)]
        tried_with_all |= asked
        replaced = any(guard.replaces_a_size() for guard in failing)  # The model's inputs would have one size.
        # No numbers may lead to what is evaluated only for some, as in `if (x == 77).all() and n > 4`.
        may_not_run = any(guard.depends_on_data and not guard.is_asked_by_torch() for guard in failing)
        if (
            runnable is None
            or replaced
            or may_not_run
            or not is_right(module, runnable, example, moved, expected, numbers)
        ):
            other = moved if any(guard.names_special_sizes() for guard in failing) else None
            if not replaced and all(guard.is_asked_by_torch() for guard in failing):
                other = _at_ordinary_sizes(module, example, declared, guards, largest) or moved
            raise _failure(*chosen[0], failing, declared.dimensions, guards, other)
    return ()


def is_right_at_one(
    module: torch.nn.Module,
    program: torch.export.ExportedProgram,
    example: tuple[tuple[Any, ...], dict[str, Any]],
    declared: DeclaredDimensions,
) -> bool:
    """Whether the program computes what eager PyTorch does if dimensions that were declared from 1 have this size.

    A size that eager PyTorch refuses is no difference.
    """
    runnable = Runnable(program)
    from_one = [one for one in declared.dimensions if one.low == 1]
    for chosen in [*([one] for one in from_one), *([from_one] if len(from_one) > 1 else [])]:
        moved = declared.resized(example, {source: size for one in chosen for source, size in one.sizes_at(1).items()})
        expected = eager_results(module, *moved)
        if expected is not None and not computes(module, runnable, example, moved, expected):
            return False
    return True


def _at_ordinary_sizes(
    module: torch.nn.Module,
    example: tuple[tuple[Any, ...], dict[str, Any]],
    declared: DeclaredDimensions,
    guards: Sequence[SizeGuard],
    largest: int,
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The example inputs at a multiple of the sizes that torch asked about, at which the fewest are a special case.

    Example: the four stages of a Swin Transformer may be one window high and wide at the example's size.
    """
    special = [guard for guard in guards if guard.is_asked_by_torch() and not guard.is_inequality()]
    fixing = [guard for guard in special if guard.fixes_a_number()] or special
    asked = {source for guard in fixing for sources in guard.symbols.values() for source in sources}
    about = [one for one in declared.dimensions if asked & one.sizes_at(one.size).keys()]
    own = _multiple(declared.dimensions, 1)
    at: dict[int, int] = {}
    for times in _MULTIPLES:
        sizes = {**own, **_multiple(about, times)}
        if declared.elements(example, sizes) <= largest:
            at[times] = sum(guard.fails(sizes) for guard in special)
    for times in sorted(at, key=lambda times: -at[times]):
        moved = declared.resized(example, _multiple(about, times))
        if at[times] and eager_results(module, *moved) is not None:
            return moved
    return None


def _multiple(dimensions: Sequence[DynamicDimension], times: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for one in dimensions:
        size = times * one.size
        sizes |= one.sizes_at(size if _may_have(one, size) else one.size)
    return sizes


def _together(
    dimensions: Sequence[DynamicDimension], guards: Sequence[SizeGuard]
) -> Iterator[list[tuple[DynamicDimension, int]]]:
    """Sizes of several dimensions at once, for ``x.shape[1:] == (10, 12)`` and ``h % 8 == 0 and w % 8 == 0``.

    Python asks the second part only where the first holds, so that no guard names it.
    """
    asked = [guard for guard in guards if not guard.is_asked_by_torch()]
    divisors = sorted({divisor for guard in asked for divisor in guard.divisors()})
    sizes: list[list[int | None]] = []
    for one in dimensions:
        near = [size for divisor in divisors for size in (one.size + 1, divisor * (one.size // divisor + 1))]
        named = []
        for place, own in ((place, one.sizes_of(derived)) for place, derived in one.places):
            compared = (size for guard in asked for size in guard.sizes_compared(place.size, own))
            named += [one.lowest + own.index(size) for size in compared]
        sizes.append([None, *(size for size in dict.fromkeys([*named, *near]) if _may_have(one, size))])
    for combination in itertools.islice(itertools.product(*sizes), _MOST_COMBINATIONS):
        chosen = [(one, size) for one, size in zip(dimensions, combination, strict=True) if size is not None]
        if len(chosen) > 1:
            yield chosen


def _of_conditions(
    dimensions: Sequence[DynamicDimension], guards: Sequence[SizeGuard], base: Mapping[str, int]
) -> Iterator[list[tuple[DynamicDimension, int]]]:
    """Sizes at which a condition in Python is false, as ``n * n < 50000`` and ``height != width``, and equal sizes.

    After ``a != b`` Python does not compare ``b`` with ``c``. For ``int(n / 2) > 200`` torch asks whether
    ``int(n / 2)`` is the number that it is in the example, and does not compare it with 200.
    """
    of = {place.source: one for one in dimensions for place, _ in one.places}
    ranges = {place.source: one.sizes_of(derived) for one in dimensions for place, derived in one.places}
    for guard in {guard.condition: guard for guard in guards if not guard.is_asked_by_torch()}.values():
        for sizes in itertools.chain.from_iterable(
            one.failing_sizes(base, ranges) for one in (guard, *guard.comparisons())
        ):
            chosen = {source: of[source].lowest + ranges[source].index(size) for source, size in sizes.items()}
            yield list({id(of[source]): (of[source], size) for source, size in chosen.items()}.values())
        if len(guard.condition.free_symbols) > 1:
            for equal in sorted({one.size for one in dimensions}):
                yield [(one, equal) for one in dimensions if _may_have(one, equal)]


def _may_have(dimension: DynamicDimension, size: int) -> bool:
    return size != dimension.size and dimension.lowest <= size <= (dimension.high or size)


def _candidates(dimension: DynamicDimension, guards: Sequence[SizeGuard]) -> Iterator[int]:
    base = dimension.size
    limits = [
        (limit, dimension.sizes_of(derived))
        for guard in guards
        for place, derived in dimension.places
        for limit in guard.limits(place.source)
        if limit is not None
    ]
    before = {dimension.lowest + (limit - 1 - own.start) // own.step for limit, own in limits}
    beyond = sorted(before | {dimension.lowest - (own.start - limit - 1) // own.step for limit, own in limits})
    whole = sorted({times * divisor for guard in guards for divisor in guard.divisors() for times in (1, 2)})
    near = [base + step for step in _STEPS] + [2 * base, 3 * base] + [base - step for step in _STEPS] + [base // 2]
    ends = [dimension.low, *([] if dimension.high is None else [dimension.high])]
    for size in dict.fromkeys([*near, *beyond, *whole, *ends]):
        if _may_have(dimension, size):
            yield size


def _lines(guards: Sequence[SizeGuard]) -> tuple[str, ...]:
    found = (innermost(guard.frames, libraries=True) for guard in guards)
    return tuple(dict.fromkeys(str(line) for line in found if line is not None))


def _failure(
    dimension: DynamicDimension,
    size: int,
    failing: Sequence[SizeGuard],
    dimensions: Sequence[DynamicDimension],
    guards: Sequence[SizeGuard],
    other: tuple[tuple[Any, ...], dict[str, Any]] | None,
) -> CaptureError:
    """The error for a size that some guards exclude; it explains the first of them.

    Args:
        dimension: The dimension.
        size: The size.
        failing: The guards that exclude it.
        dimensions: All declared dimensions.
        guards: All guards.
        other: Example inputs with other sizes that may be captured for all sizes, if there are any.
    """
    guard = failing[0]
    names = {
        place.source: other.name if other.name != str(place) and derived(7) == 7 else place.expression
        for other in dimensions
        for place, derived in other.places
    }
    finding = restricted_dimension.finding(dimension, size, guard, guard.text(names), dimensions, guards)
    fixing = [one for one in guards if one.fixes_a_number() and not one.is_asked_by_torch()]
    lines, others = (
        [line for one in chosen if (line := innermost(one.frames, libraries=True)) is not None]
        for chosen in (failing[::-1], fixing)
    )
    details = f"{finding.message}\n" + "\n".join(map(str, guard.frames))
    axes = [place.source for place, _ in dimension.places]
    return CaptureFailure(finding, details=details, lines=lines, others=others, axes=axes, other_example=other)
