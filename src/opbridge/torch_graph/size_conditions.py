"""Decides conditions on dynamic sizes that hold, or fail, at all sizes, such as ``2 * ((n - 1) // 2) < n``.

torch decides a condition by intervals. They lose that ``n // 2`` depends on ``n``, so that torch assumes the condition
and restricts the size, although every size fulfills it. Pooling in ceil mode has such a condition.

A size is written as ``period * q + rest``. For each ``rest`` the quotients and remainders by divisors of the period are
linear in ``q``, and a linear expression has its extreme values at the limits of ``q``. Products and extremes of parts
that depend on the rest alone are numbers then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

__all__ = ["REMAINDERS", "always", "decided", "deciding_conditions"]

_MOST_CASES = 4096
_QUOTIENTS, REMAINDERS = ("FloorDiv", "CleanDiv"), ("Mod", "PythonMod")
_EXTREMES = {"Min": min, "Max": max}
_RELATIONS = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)

Limits = tuple[int, int | None]
"""The smallest and the largest size; None for no limit."""


class _NotLinear(Exception):
    """An expression is not linear in the quotients, even for a given rest."""


@dataclasses.dataclass(frozen=True)
class _Linear:
    """The number ``constant`` plus the sum of ``factor * q`` over the symbols."""

    constant: int
    factors: Mapping[Any, int] = dataclasses.field(default_factory=dict)

    def __add__(self, other: _Linear) -> _Linear:
        names = self.factors.keys() | other.factors.keys()
        factors = {name: self.factors.get(name, 0) + other.factors.get(name, 0) for name in names}
        return _Linear(self.constant + other.constant, factors)

    def times(self, number: int) -> _Linear:
        return _Linear(self.constant * number, {name: factor * number for name, factor in self.factors.items()})

    def range(self, limits: Mapping[Any, Limits]) -> tuple[float, float]:
        """The smallest and the largest value; infinite without a limit."""
        low: float = self.constant
        high: float = self.constant
        for name, factor in self.factors.items():
            smallest, largest = limits[name]
            ends = [factor * smallest, factor * (math.inf if largest is None else largest)] if factor else [0]
            low, high = low + min(ends), high + max(ends)
        return low, high


def always(condition: Any, limits: Mapping[Any, Limits]) -> bool | None:
    """Whether a condition has the same truth value at all sizes, and which; None if it has not, or it is not decided.

    Args:
        condition: A sympy relation of integers with torch's functions ``FloorDiv``, ``CleanDiv``, ``Mod`` and
            ``PythonMod``, ``Min`` and ``Max``, or a polynomial.
        limits: The limits of each symbol.
    """
    if not isinstance(condition, _RELATIONS):
        return None
    known = tuple(sorted(limits.items(), key=lambda item: str(item[0])))
    try:
        return _always(condition, known) if condition.atoms(sympy.Function) else _always_of_product(condition, known)
    except _NotLinear:
        return None


@functools.lru_cache(maxsize=4096)
def _always(condition: Any, limits: tuple[tuple[Any, Limits], ...]) -> bool | None:
    difference = condition.lhs - condition.rhs
    symbols = sorted(difference.free_symbols, key=str)
    known = dict(limits)
    if any(symbol not in known for symbol in symbols):
        return None
    periods = {symbol: _period(difference, symbol)[0] for symbol in symbols}
    rests = [_rests(known[symbol], periods[symbol]) for symbol in symbols]
    if math.prod(map(len, rests)) > _MOST_CASES:
        return None
    found: set[bool | None] = set()
    for case in itertools.product(*rests):
        rest = dict(zip(symbols, case, strict=True))
        counts = {symbol: _count_limits(known[symbol], periods[symbol], rest[symbol]) for symbol in symbols}
        low, high = _linear(difference, periods, rest).range(counts)
        found.add(_truth(condition, low, high))
        if len(found) > 1 or None in found:
            return None
    return found.pop() if found else None


@functools.lru_cache(maxsize=4096)
def _always_of_product(condition: Any, limits: tuple[tuple[Any, Limits], ...]) -> bool | None:
    """As ``_always``, of a polynomial that is a product of linear factors: ``a * b + b`` is ``(a + 1) * b``."""
    difference, known = condition.lhs - condition.rhs, dict(limits)
    if len(difference.free_symbols) < 2 or not difference.free_symbols <= known.keys():
        return None
    number, factors = sympy.factor_list(difference)
    if not number.is_Integer:
        return None
    low = high = float(number)
    for factor, power in factors:
        ends = _linear(factor, dict.fromkeys(known, 1), dict.fromkeys(known, 0)).range(known)
        for _ in range(power):
            products = [a * b if a and b else 0.0 for a in (low, high) for b in ends]
            low, high = min(products), max(products)
    return _truth(condition, low, high)


def _rests(limits: Limits, period: int) -> Sequence[int]:
    """The remainders of the sizes by the period."""
    low, high = limits
    if high is None or high - low + 1 >= period:
        return range(period)
    return [size % period for size in range(low, high + 1)]


def _count_limits(limits: Limits, period: int, rest: int) -> Limits:
    """The limits of q in ``period * q + rest``."""
    low, high = limits
    return -((rest - low) // period), None if high is None else (high - rest) // period


def _truth(condition: Any, low: float, high: float) -> bool | None:
    """The truth value of a relation to 0 of an expression between two values; None if it has both."""
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        is_equal = True if low == high == 0 else False if low > 0 or high < 0 else None
        return is_equal if is_equal is None or isinstance(condition, sympy.Eq) else not is_equal
    if isinstance(condition, (sympy.Gt, sympy.Le)):
        is_above = True if low > 0 else False if high <= 0 else None
        return is_above if is_above is None or isinstance(condition, sympy.Gt) else not is_above
    is_below = True if high < 0 else False if low >= 0 else None
    return is_below if is_below is None or isinstance(condition, sympy.Lt) else not is_below


@functools.lru_cache(maxsize=4096)
def _period(expression: Any, symbol: Any) -> tuple[int, int | None]:
    """The number by whose multiples the symbol may grow with a linear growth of the expression, and that growth.

    The growth is None if it depends on the rest.
    """
    if expression == symbol:
        return 1, 1
    if symbol not in expression.free_symbols:
        return 1, 0
    parts = [_period(part, symbol) for part in expression.args]
    period = math.lcm(*(own for own, _ in parts))
    growths = [None if growth is None else growth * (period // own) for own, growth in parts]
    numbers = [int(factor) for factor in expression.args if factor.is_Integer]
    if isinstance(expression, sympy.Add):
        return period, None if None in growths else sum(growth or 0 for growth in growths)
    if isinstance(expression, sympy.Mul) and len(numbers) == len(parts) - 1:
        growth = next(growth for growth, factor in zip(growths, expression.args, strict=True) if not factor.is_Integer)
        return period, None if growth is None else growth * math.prod(numbers)
    if isinstance(expression, sympy.Mul) or type(expression).__name__ in _EXTREMES:
        return period, None if any(growths) or None in growths else 0
    divisor, growth = _divisor(expression), growths[0]
    times = divisor if growth is None else divisor // math.gcd(growth, divisor)
    is_periodic = type(expression).__name__ in REMAINDERS
    return period * times, 0 if is_periodic else None if growth is None else growth * times // divisor


def _divisor(call: Any) -> int:
    divisor = call.args[1] if type(call).__name__ in (*_QUOTIENTS, *REMAINDERS) else sympy.S.Zero
    if not divisor.is_Integer or divisor <= 0:
        raise _NotLinear
    return int(divisor)


def _linear(expression: Any, periods: Mapping[Any, int], rest: Mapping[Any, int]) -> _Linear:
    if expression.is_Integer:
        return _Linear(int(expression))
    if expression in periods:
        return _Linear(rest[expression], {expression: periods[expression]})
    name = type(expression).__name__
    if name in (*_QUOTIENTS, *REMAINDERS):
        return _divided(_linear(expression.args[0], periods, rest), _divisor(expression), name in REMAINDERS)
    parts = [_linear(part, periods, rest) for part in expression.args]
    if isinstance(expression, sympy.Add):
        return functools.reduce(_Linear.__add__, parts)
    constants = [part.constant for part in parts if not any(part.factors.values())]
    others = [part for part in parts if any(part.factors.values())]
    if isinstance(expression, sympy.Mul) and len(others) <= 1:
        return (others or [_Linear(1)])[0].times(math.prod(constants))
    if name in _EXTREMES and not others:
        return _Linear(_EXTREMES[name](constants))
    raise _NotLinear


def _divided(number: _Linear, divisor: int, is_remainder: bool) -> _Linear:
    if any(factor % divisor for factor in number.factors.values()):
        raise _NotLinear
    if is_remainder:
        return _Linear(number.constant % divisor)
    factors = {symbol: factor // divisor for symbol, factor in number.factors.items()}
    return _Linear(number.constant // divisor, factors)


@contextlib.contextmanager
def deciding_conditions() -> Iterator[None]:
    """Let torch decide these conditions inside the block, instead of assuming them.

    It uses ``ShapeEnv._maybe_evaluate_static``, to which torch passes a condition before it assumes it, and
    ``var_to_range``.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    own = ShapeEnv._maybe_evaluate_static

    @functools.wraps(own)  # torch empties its cache, which is an attribute.
    def evaluate(env: Any, expression: Any, **options: Any) -> Any:
        result = own(env, expression, **options)
        is_open = result is None and not options.get("unbacked_only")
        if is_open and isinstance(expression, _RELATIONS) and _may_be_decided(expression):
            truth = decided(env, expression)
            result = None if truth is None else sympy.true if truth else sympy.false
        return result

    ShapeEnv._maybe_evaluate_static = evaluate  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ShapeEnv._maybe_evaluate_static = own  # type: ignore[method-assign]


def decided(env: Any, condition: Any) -> bool | None:
    """:func:`always` with the limits that a ``ShapeEnv`` knows."""
    condition = env.simplify(condition)
    limits = {symbol: _limits(env.var_to_range.get(symbol)) for symbol in condition.free_symbols}
    return always(condition, {symbol: limit for symbol, limit in limits.items() if limit is not None})


def _may_be_decided(expression: Any) -> bool:
    is_product = any(len(product.free_symbols) > 1 for product in expression.atoms(sympy.Mul))
    return is_product or bool(expression.atoms(sympy.Function))


def _limits(found: Any) -> Limits | None:
    """The range that torch knows of a symbol; None if it has no lower limit, or is no range of integers."""
    if found is None or not found.lower.is_Integer:
        return None
    return int(found.lower), int(found.upper) if found.upper.is_Integer else None
