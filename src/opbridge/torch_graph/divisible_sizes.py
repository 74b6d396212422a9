"""What is known of sizes, such as that they are multiples of a number, and the short forms that follow from it.

A model that halves its input several times often raises an error unless the size is a multiple of, say, 32. For such a
size, ``(n // 2 + 1) // 2`` is ``n // 4``, and ``n // 8 % 4`` is 0. The larger one of two numbers is often known too:
``max(0, (n + 3) // 4 - 1)`` is ``(n + 3) // 4 - 1``. torch keeps the long forms: it would assume a condition on them,
or take minutes for those of a model with several stages.

Quotients that are rounded become integer quotients only if a multiple is known: of some others, torch knows more.

The internals of torch that this needs: the ``var_to_range`` and the ``divisible`` of a ``ShapeEnv``, which torch fills
from equations alone, its ``_maybe_guard_rel``, to which torch passes a condition that it assumes, and functions of
``torch.utils._sympy.functions``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

from opbridge.torch_graph.all_sizes import always
from opbridge.torch_graph.equal_sizes import note_equation
from opbridge.torch_graph.linear_sizes import REMAINDERS, Limits
from opbridge.torch_graph.short_quotients import without_rounding
from opbridge.torch_graph.size_guards import forget_results, guard_at

__all__ = ["SizeFacts", "counted", "facts_of", "noting_facts", "shortened_by"]


@dataclasses.dataclass(frozen=True)
class SizeFacts:
    """What is known of the symbols of sizes.

    Attributes:
        limits: The limits of each.
        divisors: The number that it is a multiple of.
    """

    limits: frozenset[tuple[Any, Limits]] = frozenset()
    divisors: frozenset[tuple[Any, int]] = frozenset()

    @functools.cached_property
    def counts(self) -> dict[Any, tuple[Any, int]]:
        """Each symbol that counts, with the size that is this number times it."""
        return {
            sympy.Symbol(f"{size} // {number}", integer=True, positive=size.is_positive): (size, number)
            for size, number in self.divisors
        }

    @functools.cached_property
    def multiples(self) -> dict[Any, Any]:
        """Each size that is a multiple as the product of the number and the symbol that counts."""
        return {size: number * count for count, (size, number) in self.counts.items()}

    @functools.cached_property
    def limits_counted(self) -> dict[Any, Limits]:
        """The limits of the symbols in such an expression."""
        limits = dict(self.limits)
        for count, (size, number) in self.counts.items():
            if size in limits:
                low, high = limits.pop(size)
                limits[count] = -(-low // number), None if high is None else high // number
        return limits


def facts_of(env: Any, expression: Any) -> SizeFacts:
    """What a ``ShapeEnv`` knows of the symbols of an expression."""
    symbols = expression.free_symbols
    limits = ((symbol, _limits(env.var_to_range.get(symbol))) for symbol in symbols)
    known = frozenset((symbol, limit) for symbol, limit in limits if limit is not None)
    divisors = _divisors(env) if env.divisible else {}
    return SizeFacts(known, frozenset((size, number) for size, number in divisors.items() if size in symbols))


def _limits(found: Any) -> Limits | None:
    """The range that torch knows of a symbol; None if it has no lower limit, or is no range of integers."""
    if found is None or not found.lower.is_Integer:
        return None
    return int(found.lower), int(found.upper) if found.upper.is_Integer else None


def _divisors(env: Any) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for remainder in env.divisible:
        size, number = remainder.args
        if size.is_Symbol and number.is_Integer:
            found[size] = math.lcm(found.get(size, 1), int(number))
    return found


@contextlib.contextmanager
def noting_facts() -> Iterator[None]:
    """Note inside the block which sizes are multiples of a number, or equal, by the conditions that torch assumes."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

    own = ShapeEnv._maybe_guard_rel

    @functools.wraps(own)
    def note(env: Any, condition: Any) -> None:
        facts = facts_of(env, condition)
        own(env, condition)
        if free_unbacked_symbols(condition):
            return
        found = _multiple(condition, facts)
        if found is not None and found not in facts.divisors:
            env.divisible.add(Mod(*found))
            forget_results(env)  # It depends on them how torch writes a size.
        # A comparison with a number mostly chooses between two ways to compute.
        is_of_sizes = isinstance(condition, sympy.Eq) and all(side.free_symbols for side in condition.args)
        if is_of_sizes and not guard_at(condition, {}).is_asked_by_torch():
            note_equation(env, shortened_by(facts, condition, in_full=True))

    ShapeEnv._maybe_guard_rel = note  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv._maybe_guard_rel = own  # type: ignore[method-assign]


_ONLY_ZERO = {("==", 0), ("<=", 0), ("<", 1)}
"""The comparisons with which a remainder by a positive number is 0."""


def _multiple(condition: Any, facts: SizeFacts) -> tuple[Any, int] | None:
    """The size that is a multiple of a number where a condition holds, such as ``n // 2 % 16 <= 0`` for an even n."""
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    if type(condition.rhs).__name__ in REMAINDERS:
        condition = condition.reversed
    remainder, limit = condition.args
    if type(remainder).__name__ not in REMAINDERS or (condition.rel_op, limit) not in _ONLY_ZERO:
        return None
    size, number = remainder.args
    factor, symbol = counted(facts, size).as_coeff_Mul()
    if not (number.is_Integer and number > 0 and factor.is_Integer and symbol.is_Symbol):
        return None
    size, known = facts.counts.get(symbol, (symbol, 1))
    return size, known * int(number) // math.gcd(int(factor), int(number))


@functools.lru_cache(maxsize=4096)
def shortened_by(facts: SizeFacts, expression: Any, in_full: bool = False) -> Any:
    """A short form of an expression or a condition, for sizes of which this is known.

    Args:
        facts: What is known of the sizes.
        expression: The expression or the condition.
        in_full: Whether ``max(0, x)`` is ``x`` also for an ``x`` with other such calls. torch does not see that the
            difference ``min(6, n) - min(4, n)`` is never negative, and needs much longer for several of them.
    """
    if type(expression).__name__ in REMAINDERS and expression.args in facts.divisors:
        return expression  # This is how torch writes that a size is a multiple.
    if not expression.atoms(sympy.Function, Max, Min):
        return expression
    return _in_sizes(facts, _expanded(facts, counted(facts, expression, in_full)))


def counted(facts: SizeFacts, expression: Any, in_full: bool = False) -> Any:
    """The short form of an expression in terms of the symbols that count: a multiple of 4 is ``4 * count``."""
    calls = {call: _short_call(facts, call, in_full) for call in _outer_calls(expression)}
    return expression.xreplace({**facts.multiples, **calls})


@functools.lru_cache(maxsize=4096)
def _short_call(facts: SizeFacts, call: Any, in_full: bool) -> Any:
    short = call.func(*(_expanded(facts, counted(facts, part, in_full)) for part in call.args))
    if facts.divisors:
        short = without_rounding(short)
    if not isinstance(short, (Max, Min)) or len(short.args) > 2 or not any(one.is_Integer for one in short.args):
        return short
    if not (in_full or facts.divisors) and any(one.atoms(Max, Min) for one in short.args):
        return short
    # torch takes the sizes of inputs for positive where it computes with them. Limits of others are stated later.
    limits = {symbol: (max(low, 1), high) for symbol, (low, high) in facts.limits_counted.items() if symbol.is_positive}
    return _extreme(limits, short)


def _expanded(facts: SizeFacts, expression: Any) -> Any:
    """The expression as a sum, so that the factors of the symbols that count are numbers."""
    return sympy.expand(expression) if facts.divisors and isinstance(expression, sympy.Expr) else expression


def _outer_calls(expression: Any) -> Iterator[Any]:
    """The calls of functions in an expression that are in no other."""
    parts = sympy.preorder_traversal(expression)
    for part in parts:
        if isinstance(part, (sympy.Function, Max, Min)):
            parts.skip()
            yield part


def _extreme(limits: Mapping[Any, Limits], call: Any) -> Any:
    """The larger, or the smaller, one of two numbers if it is known which one that is.

    ``max(1, n // 256)`` remains: torch writes the strides of a tensor so, and would assume that ``n // 256`` is not 1.
    """
    number, other = sorted(call.args, key=lambda one: not one.is_Integer)
    if number == 1 and not other.atoms(Max, Min):
        return call
    if always(sympy.Ge(other, number), limits):
        return other if isinstance(call, Max) else number
    return call if not always(sympy.Le(other, number), limits) else number if isinstance(call, Max) else other


@functools.lru_cache(maxsize=4096)
def _in_sizes(facts: SizeFacts, expression: Any) -> Any:
    """The expression with quotients of the sizes: ``6 * count`` is ``3 * (n // 2)`` if ``n`` is ``4 * count``."""
    if not expression.free_symbols & facts.counts.keys():
        return expression
    if not isinstance(expression, (sympy.Symbol, sympy.Mul)):
        return expression.func(*(_in_sizes(facts, part) for part in expression.args))
    factor, rest = expression.as_coeff_Mul()
    parts = []
    for part in sympy.Mul.make_args(rest):
        if part in facts.counts:
            size, number = facts.counts[part]
            common = math.gcd(int(factor), number) if factor.is_Integer else 1
            factor /= common
            parts.append(FloorDiv(size, number // common))
        else:
            parts.append(_in_sizes(facts, part))
    return sympy.Mul(factor, *parts)
