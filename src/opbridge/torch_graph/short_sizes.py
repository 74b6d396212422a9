"""Shortens sizes: torch could not reason about what later operators compute from them within a reasonable time.

After a branch on a size, a number is ``b + one_or_zero * (a - b)``, or a minimum or maximum if the condition compares
the two. For example, a function that pads a short input, so that it can be reflected, and then pads by that much less
has a result of the same size on both paths, but torch adds up numbers of this form.

The internals of torch that this needs: ``replace`` of a ``ShapeEnv``, and ``Max`` and ``Min`` of
``torch.utils._sympy.functions``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import Max, Min

from opbridge.torch_graph.divisible_sizes import facts_of, noting_facts, shortened_by
from opbridge.torch_graph.equal_sizes import in_equal_sizes

__all__ = ["short_sizes", "shortened"]


@functools.lru_cache(maxsize=4096)
def shortened(size: Any) -> Any:
    """A size without the choices that make no difference to it.

    Args:
        size: An integer of sympy. ``Max(0, Min(1, d))`` is a choice by whether the integer ``d`` is positive.
    """
    for choice, difference in _choices(size):
        found = set()
        for is_positive in (True, False):
            with contextlib.suppress(ZeroDivisionError):  # It is not computed where a divisor is 0.
                found.add(_on_path(size, choice, difference, is_positive))
        if len(found) == 1:
            return shortened(found.pop())
    return size


def _choices(size: Any) -> Iterator[tuple[Any, Any]]:
    for choice in size.atoms(Max):
        if len(choice.args) == 2 and choice.args[0] == 0 and isinstance(choice.args[1], Min):
            one, *differences = choice.args[1].args
            if one == 1 and len(differences) == 1:
                yield choice, differences[0]


def _on_path(size: Any, choice: Any, difference: Any, is_positive: bool) -> Any:
    """The size where the difference is at least 1, or where it is at most 0."""
    known = {choice: sympy.Integer(is_positive)}
    for call in size.atoms(Max, Min) - {choice}:
        if len(call.args) != 2:
            continue
        for first, second in (call.args, call.args[::-1]):
            distance = sympy.expand(first - second - difference)
            if distance.is_Integer and (distance >= -1 if is_positive else distance <= 0):
                # The first is the larger one if the difference is positive, and the smaller one if not.
                known[call] = first if is_positive == isinstance(call, Max) else second
    return sympy.expand(size.xreplace(known))


@contextlib.contextmanager
def short_sizes() -> Iterator[None]:
    """Let torch shorten sizes inside the block, where it replaces symbols: ``ShapeEnv.replace``."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    own = ShapeEnv.replace

    @functools.wraps(own)  # torch empties its cache, which is an attribute.
    def replace(env: Any, expression: Any) -> Any:
        replaced = in_equal_sizes(env, own(env, expression))
        replaced = shortened_by(facts_of(env, replaced), replaced)
        return shortened(replaced) if isinstance(replaced, sympy.Expr) and replaced.is_integer else replaced

    ShapeEnv.replace = replace  # type: ignore[method-assign, assignment]
    try:
        with noting_facts():
            yield
    finally:
        ShapeEnv.replace = own  # type: ignore[method-assign]
