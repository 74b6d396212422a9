"""A dynamic dimension is captured for some of its sizes only, and PyTorch accepts others.

What it means: the model compares a dynamic size in a Python condition that opbridge can't convert to a branch of the
model, or converts it to a Python number. torch.export evaluates this for the size in the example, and the captured
program is valid only for sizes with the same result.

Why it is a problem: at other sizes that PyTorch accepts, the ONNX model would be wrong, or would fail.

Example::

    mask = None if x.shape[0] % 4 == 0 else self.mask   # the example has 8 rows: captured without a mask

Fix: compute with the size instead of branching on it (a mask of ones instead of None), or write the branch with
``torch.cond``. If the sizes in use all satisfy the condition, declare only these: a range such as
``torch.export.Dim("n", max=5)``, one name for dimensions that are always equal, or no dynamic dimension.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from opbridge.findings.base import Finding, described_place, shortened, source_names
from opbridge.torch_graph.declared import SMALLEST, DynamicDimension
from opbridge.torch_graph.size_guards import SizeGuard, range_around, step_around
from opbridge.torch_graph.sources import innermost

CODE = "restricted-dimension"


def finding(
    dimension: DynamicDimension,
    size: int,
    guard: SizeGuard,
    condition: str,
    others: Sequence[DynamicDimension] = (),
    guards: Sequence[SizeGuard] = (),
) -> Finding:
    """Make the finding from the dimension, a size of it that PyTorch accepts, and the condition that excludes it.

    Args:
        dimension: The dimension.
        size: The size.
        guard: The guard of the captured program.
        condition: Its condition, as Python source.
        others: All declared dimensions, which the condition may depend on too.
        guards: All guards of the captured program, which the fix must satisfy too.
    """
    place, source = innermost(guard.frames, libraries=True), innermost(guard.frames)
    places = ", ".join(str(place) for place, _ in dimension.places)
    where = "" if place is None else f"{described_place(place, source)}: {shortened(place.text)}"
    name = "" if dimension.name == places else f" ({dimension.name})"
    return Finding(
        CODE,
        places,
        f"Declared dynamic, but captured for some {'values' if dimension.is_number else 'sizes'} only: {places}{name}. "
        f"PyTorch accepts {'' if dimension.is_number else 'the size '}{size}; the captured program requires "
        f"{condition}{where}",
        _fix(dimension, size, guard, others, list(filter(_is_of_the_model, guards))),
        sources=source_names(source),
    )


def _is_of_the_model(guard: SizeGuard) -> bool:
    """Whether a guard restricts a size: not if an operator of torch asks whether a size is 1, and broadcasts."""
    return guard.has_remainder() or not guard.is_inequality()


def _fix(
    dimension: DynamicDimension,
    size: int,
    guard: SizeGuard,
    others: Sequence[DynamicDimension],
    guards: Sequence[SizeGuard],
) -> str:
    number = "number" if dimension.is_number else "size"
    change = f"replace the Python condition or conversion in this line by arithmetic on the {number}, or by torch.cond"
    if guard.frames and re.search(r"\bsqueeze\(", guard.frames[-1].text):
        change = "leave out the squeeze, or take an element of this dimension"
    if guard.is_equality_of_dimensions():
        return f"if the two sizes are always equal, give both one name in dynamic_shapes; otherwise {change}."
    name = dimension.name if dimension.name.isidentifier() else "n"

    # The guard may restrict the other dimensions too.
    possible = [at for at in _at_other_sizes(others) if not guard.fails({**at, **dimension.sizes_at(dimension.size)})]

    def holds(size: int) -> bool:
        at_sizes = [{**sizes, **dimension.sizes_at(size)} for sizes in possible]
        alone = {**_of_the_example(others), **dimension.sizes_at(size)}
        return not any(map(guard.fails, at_sizes)) and not any(one.fails(alone) for one in guards)

    step = step_around(dimension.size, holds)
    if step is not None and dimension.is_number:
        return f"{change}."
    if step is not None:
        return (
            f"declare {step} * torch.export.Dim('_{name}') in dynamic_shapes if your sizes are multiples of {step}; "
            f"otherwise {change}."
        )
    low, high = range_around(dimension.size, holds)
    if size < SMALLEST and low is None and not dimension.is_number:
        low, high = SMALLEST, dimension.high if high is None else high
    if low == high or not holds(dimension.size) or high == dimension.size < SMALLEST:
        what, which = ("input", "it") if dimension.is_number else ("dimension", "its size")
        return f"leave the {what} out of dynamic_shapes if {which} is always {dimension.size}; otherwise {change}."
    text = ", ".join([*([f"min={low}"] if low is not None else []), *([f"max={high}"] if high is not None else [])])
    declared = f"torch.export.Dim.DYNAMIC({text})" if dimension.is_number else f"torch.export.Dim({name!r}, {text})"
    return f"declare {declared} if your {number}s are within this range; otherwise {change}."


def _of_the_example(dimensions: Sequence[DynamicDimension]) -> dict[str, int]:
    return {source: size for one in dimensions for source, size in one.sizes_at(one.size).items()}


def _at_other_sizes(dimensions: Sequence[DynamicDimension]) -> list[dict[str, int]]:
    """The sizes of all declared axes: those of the example, the smallest ones, and larger ones."""
    found: list[dict[str, int]] = []
    for times in (0, 1, 2, 4):
        sizes: dict[str, int] = {}
        for one in dimensions:
            size = max(one.low, times * one.size)
            sizes |= one.sizes_at(size if one.high is None else min(size, one.high))
        found.append(sizes)
    return found
