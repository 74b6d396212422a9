"""Sizes that a model requires to be equal: the longer one is written as the other from then on.

After ``if z.shape[-1] != length: raise ValueError(...)`` the size is ``length``, although torch keeps the form in which
it was computed, such as ``Max(0, -Min(2, n) + Min(length + 2, n))`` for a slice, and computes further sizes with it.

The internals of torch that this needs: the ``axioms`` of a ``ShapeEnv``, by which torch also replaces parts of the
conditions that it evaluates, and ``Max`` and ``Min`` of ``torch.utils._sympy.functions``.
"""

from __future__ import annotations

import functools
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import Max, Min

from opbridge.torch_graph.linear_sizes import REMAINDERS
from opbridge.torch_graph.size_guards import forget_results

__all__ = ["in_equal_sizes", "note_equation"]


def note_equation(env: Any, equation: Any) -> None:
    """Note in a ``ShapeEnv`` that the two sides of an equation are equal."""
    found = _solved(equation) if isinstance(equation, sympy.Eq) else None
    if found is not None and found[0] not in env.axioms:
        call, value = found
        env.axioms[call] = value
        forget_results(env)


def in_equal_sizes(env: Any, expression: Any) -> Any:
    """An expression with the shorter ones of the sizes that are noted as equal."""
    while known := {call: env.axioms[call] for call in _calls(expression) if call in env.axioms}:
        expression = expression.xreplace(known)
    return expression


@functools.lru_cache(maxsize=4096)
def _calls(expression: Any) -> frozenset[Any]:
    return frozenset(expression.atoms(sympy.Function, Max, Min))


def _solved(equation: Any) -> tuple[Any, Any] | None:
    """The longest call of a function in an equation for which it can be solved, and its value, which is shorter."""
    if not all(side.is_integer for side in equation.args):
        return None
    difference = sympy.expand(equation.lhs - equation.rhs)
    factors = difference.as_coefficients_dict()
    for call in sorted(factors, key=_length, reverse=True):
        is_remainder = type(call).__name__ in REMAINDERS  # By these torch writes that a size is a multiple.
        if is_remainder or not isinstance(call, (sympy.Function, Max, Min)) or abs(factors[call]) != 1:
            continue
        value = sympy.expand(call - difference / factors[call])
        if not value.has(call) and _length(value) < _length(call):
            return call, value
    return None


def _length(expression: Any) -> int:
    return sum(1 for _ in sympy.preorder_traversal(expression))
