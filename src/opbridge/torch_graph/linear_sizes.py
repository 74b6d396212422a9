"""Expressions of dynamic sizes as linear numbers: :func:`cases` splits the sizes so that they are linear in each part.

A size is written as ``period * q + rest``. For each ``rest`` the quotients and remainders by divisors of the period are
linear in ``q``, and a linear expression has its extreme values at the limits of ``q``. Products and extremes of parts
that depend on the rest alone are numbers then, and so is the quotient of two parts that grow alike: an image that is
cut into tiles of ``(n + 3) // 4`` rows after it was padded has four of them, whatever ``n`` is. Where the larger one of
two numbers changes with ``q``, as in ``max(n, 384)``, the sizes are split once more (:meth:`Case.parts`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

__all__ = ["REMAINDERS", "Case", "Limits", "Linear", "NotLinear", "cases", "some_sizes", "truth"]

_MOST_CASES = 4096
_SOME = 8
"""The number of sizes that are tried before :func:`cases`."""

_QUOTIENTS, REMAINDERS = ("FloorDiv", "CleanDiv"), ("Mod", "PythonMod")
_ROUNDED = ("CeilToInt", "FloorToInt")
"""The functions of ``IntTrueDiv``, which they round rightly for all sizes below 2 ** 53."""

_EXTREMES = {"Min": min, "Max": max}

Limits = tuple[int, int | None]
"""The smallest and the largest size; None for no limit."""


class NotLinear(Exception):
    """An expression is not linear in the quotients, even for a given rest.

    Attributes:
        turn: A symbol and the last ``q`` before the larger one of two numbers becomes the other; None if this is not
            the reason.
    """

    def __init__(self, turn: tuple[Any, int] | None = None) -> None:
        super().__init__()
        self.turn = turn


@dataclasses.dataclass(frozen=True)
class Linear:
    """The number ``constant`` plus the sum of ``factor * q`` over the symbols."""

    constant: int
    factors: Mapping[Any, int] = dataclasses.field(default_factory=dict)

    def __add__(self, other: Linear) -> Linear:
        names = self.factors.keys() | other.factors.keys()
        factors = {name: self.factors.get(name, 0) + other.factors.get(name, 0) for name in names}
        return Linear(self.constant + other.constant, factors)

    def __sub__(self, other: Linear) -> Linear:
        return self + other.times(-1)

    @property
    def is_number(self) -> bool:
        """Whether it has the same value for every ``q``."""
        return not any(self.factors.values())

    def times(self, number: int) -> Linear:
        """The product with a number."""
        return Linear(self.constant * number, {name: factor * number for name, factor in self.factors.items()})

    def range(self, limits: Mapping[Any, Limits]) -> tuple[float, float]:
        """The smallest and the largest value; infinite without a limit."""
        low: float = self.constant
        high: float = self.constant
        for name, factor in self.factors.items():
            smallest, largest = limits[name]
            ends = [factor * smallest, factor * (math.inf if largest is None else largest)] if factor else [0]
            low, high = low + min(ends), high + max(ends)
        return low, high


def truth(condition: Any, low: float, high: float) -> bool | None:
    """The truth value of a relation to 0 of an expression between two values; None if it has both."""
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        is_equal = True if low == high == 0 else False if low > 0 or high < 0 else None
        return is_equal if is_equal is None or isinstance(condition, sympy.Eq) else not is_equal
    if isinstance(condition, (sympy.Gt, sympy.Le)):
        is_above = True if low > 0 else False if high <= 0 else None
        return is_above if is_above is None or isinstance(condition, sympy.Gt) else not is_above
    is_below = True if high < 0 else False if low >= 0 else None
    return is_below if is_below is None or isinstance(condition, sympy.Lt) else not is_below


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes at which an expression is linear.

    Attributes:
        sizes: Each symbol as a linear number.
        counts: The limits of the ``q`` of each symbol.
    """

    sizes: Mapping[Any, Linear]
    counts: Mapping[Any, Limits]

    def range(self, expression: Any) -> tuple[float, float]:
        """The smallest and the largest value of an expression; a ZeroDivisionError if it has none."""
        return self.value(expression).range(self.counts)

    def excludes(self, condition: Any) -> bool:
        """Whether a condition fails at all of these sizes."""
        try:
            return truth(condition, *self.range(condition.lhs - condition.rhs)) is False
        except (NotLinear, ZeroDivisionError):
            return False

    def parts(self, turn: tuple[Any, int]) -> tuple[Case, Case]:
        """The sizes up to a ``q`` of a symbol, and from there on."""
        symbol, last = turn
        low, high = self.counts[symbol]
        before, after = ({**self.counts, symbol: span} for span in ((low, last), (last + 1, high)))
        return Case(self.sizes, before), Case(self.sizes, after)

    def value(self, expression: Any) -> Linear:
        """The value of an expression; a ZeroDivisionError if it has none."""
        if expression.is_Integer:
            return Linear(int(expression))
        if expression in self.sizes:
            return self.sizes[expression]
        name, numbers = _division(expression)
        if numbers:
            return self._divided(name, *map(self.value, numbers))
        if name == "ToFloat":
            return self.value(*expression.args)
        if isinstance(expression, sympy.Mul):
            return self._product(expression.args)
        if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
            return self._product([expression.base] * int(expression.exp))
        parts = map(self.value, expression.args)
        if isinstance(expression, sympy.Add):
            return functools.reduce(Linear.__add__, parts)
        if name in _EXTREMES:
            return functools.reduce(functools.partial(self._extreme, name), parts)
        raise NotLinear

    def _product(self, factors: Sequence[Any]) -> Linear:
        parts, is_defined = [], True
        for factor in factors:
            try:
                parts.append(self.value(factor))
            except ZeroDivisionError:
                is_defined = False
        numbers = [part.constant for part in parts if part.is_number]
        if 0 in numbers:  # Beside a quotient by 0 too: `a if t else b` is `b + 0 * (a - b)` where t is False.
            return Linear(0)
        if not is_defined:
            raise ZeroDivisionError
        if len(parts) > len(numbers) + 1:
            raise NotLinear
        return next((part for part in parts if not part.is_number), Linear(1)).times(math.prod(numbers))

    def _extreme(self, name: str, a: Linear, b: Linear) -> Linear:
        low, high = (a - b).range(self.counts)
        if low < 0 < high:
            raise NotLinear(_turn(a - b))
        return a if (low >= 0) == (name == "Max") else b

    def _divided(self, name: str, number: Linear, divisor: Linear) -> Linear:
        if divisor.is_number and not divisor.constant:
            raise ZeroDivisionError
        if divisor.range(self.counts)[0] < 1:
            raise NotLinear
        if name == "CeilToInt":
            number = number + divisor + Linear(-1)
        quotient, rest = self._quotient(number, divisor)
        if name == "IntTrueDiv" and not (rest.is_number and rest.constant == 0):
            raise NotLinear
        return rest if name in REMAINDERS else quotient

    def _quotient(self, number: Linear, divisor: Linear) -> tuple[Linear, Linear]:
        """The quotient, rounded down, and the rest."""
        whole = divisor.constant
        if divisor.is_number:
            if any(factor % whole for factor in number.factors.values()):
                raise NotLinear
            factors = {symbol: factor // whole for symbol, factor in number.factors.items()}
            return Linear(number.constant // whole, factors), Linear(number.constant % whole)
        symbol, growth = next((symbol, factor) for symbol, factor in divisor.factors.items() if factor)
        most = number.factors.get(symbol, 0) // growth
        for quotient in (most, most - 1):
            rest = number - divisor.times(quotient)
            if rest.range(self.counts)[0] >= 0 and (divisor - rest).range(self.counts)[0] > 0:
                return Linear(quotient), rest
        raise NotLinear


def _turn(difference: Linear) -> tuple[Any, int] | None:
    """Up to which ``q`` of its symbol a difference has one sign; None if it has several symbols."""
    growing = [(symbol, factor) for symbol, factor in difference.factors.items() if factor]
    if len(growing) != 1:
        return None
    (symbol, factor), zero = growing[0], -difference.constant
    return symbol, zero // factor


def cases(expressions: Sequence[Any], limits: Mapping[Any, Limits], count: int) -> Iterator[Case]:
    """All sizes: the smallest ones, of this number, one by one, and the others by their remainder."""
    symbols = sorted(expressions[0].free_symbols, key=str)
    if any(symbol not in limits for symbol in symbols):
        raise NotLinear
    periods = [math.lcm(*(_period(expression, symbol)[0] for expression in expressions)) for symbol in symbols]
    spans = [limits[symbol] for symbol in symbols]
    numbers = (
        count + period if high is None else min(count + period, high - low + 1)
        for period, (low, high) in zip(periods, spans, strict=True)
    )
    if math.prod(numbers) > _MOST_CASES:
        raise NotLinear
    forms = [_forms(*given, count) for given in zip(symbols, spans, periods, strict=True)]
    for case in itertools.product(*forms):
        sizes, counts = zip(*case, strict=True) if case else ((), ())
        yield Case(dict(zip(symbols, sizes, strict=True)), dict(zip(symbols, counts, strict=True)))


def some_sizes(expression: Any, limits: Mapping[Any, Limits]) -> Iterator[Case]:
    """A few sizes of the symbols of an expression, small ones and others; none if a symbol has no limits."""
    symbols = sorted(expression.free_symbols, key=str)
    if all(symbol in limits for symbol in symbols):
        for number in range(_SOME):
            sizes = {}
            for place, symbol in enumerate(symbols):
                low, high = limits[symbol]
                size = low + number * (2 * place + 3) % 17
                sizes[symbol] = Linear(size if high is None else min(size, high))
            yield Case(sizes, {})


def _forms(symbol: Any, limits: Limits, period: int, count: int) -> list[tuple[Linear, Limits]]:
    """The linear numbers that a size is, and the limits of their ``q``."""
    low, high = limits
    first = low + count if high is None else min(low + count, high + 1)
    forms: list[tuple[Linear, Limits]] = [(Linear(size), (0, 0)) for size in range(low, first)]
    rests: Sequence[int] = range(period)
    if high is not None and high - first + 1 < period:
        rests = [size % period for size in range(first, high + 1)]
    for rest in rests:
        most = None if high is None else (high - rest) // period
        forms.append((Linear(rest, {symbol: period}), (-((rest - first) // period), most)))
    return forms


_MOST_GROWTHS = 16
"""The number of combinations of growths that are told apart."""


@functools.lru_cache(maxsize=4096)
def _period(expression: Any, symbol: Any) -> tuple[int, frozenset[int] | None]:
    """The number by whose multiples the symbol may grow with a linear growth of the expression, and that growth.

    There are several growths where one of several numbers is the largest, and None if they depend on the rest.
    """
    if expression == symbol:
        return 1, frozenset({1})
    if symbol not in expression.free_symbols:
        return 1, frozenset({0})
    name, division = _division(expression)
    parts = [_period(part, symbol) for part in division or expression.args]
    period = math.lcm(*(own for own, _ in parts))
    growths = [found and frozenset(growth * (period // own) for growth in found) for own, found in parts]
    if division:
        divisor = division[1]
        if not divisor.is_Integer:  # As in n // min(n, 4), which is n // 4 for most n.
            extremes = (part for part in sympy.preorder_traversal(divisor) if type(part).__name__ in _EXTREMES)
            numbers = [int(one) for part in extremes for one in part.args if one.is_Integer and one > 0]
            return period * math.lcm(*numbers), None
        if divisor <= 0:
            raise NotLinear
        of_quotient = growths[0]
        if of_quotient is None:
            return period * int(divisor), frozenset({0}) if name in REMAINDERS else None
        times = math.lcm(*(int(divisor) // math.gcd(growth, int(divisor)) for growth in of_quotient))
        quotients = frozenset(growth * times // int(divisor) for growth in of_quotient)
        return period * times, frozenset({0}) if name in REMAINDERS else quotients
    if isinstance(expression, sympy.Add):
        return period, _combined(growths, sum)
    numbers = [int(factor) for factor in expression.args if factor.is_Integer]
    if isinstance(expression, sympy.Mul) and len(numbers) == len(parts) - 1:
        return period, _combined(growths, lambda chosen: sum(chosen) * math.prod(numbers))
    if isinstance(expression, (sympy.Mul, sympy.Pow)):
        return period, frozenset({0}) if set(growths) == {frozenset({0})} else None
    if name in _EXTREMES:
        return period, None if None in growths else frozenset().union(*(found or () for found in growths))
    if name == "ToFloat":
        return period, growths[0]
    raise NotLinear


def _combined(growths: Sequence[frozenset[int] | None], of: Callable[[Sequence[int]], int]) -> frozenset[int] | None:
    known = [found for found in growths if found is not None]
    if len(known) < len(growths) or math.prod(map(len, known)) > _MOST_GROWTHS:
        return None
    return frozenset(map(of, itertools.product(*known)))


def _division(expression: Any) -> tuple[str, Sequence[Any]]:
    """The name of a function, and its dividend and divisor; none if it does not divide."""
    name = type(expression).__name__
    if name in _ROUNDED and type(expression.args[0]).__name__ == "IntTrueDiv":
        return name, expression.args[0].args
    return name, expression.args if name in (*_QUOTIENTS, *REMAINDERS, "IntTrueDiv") else ()
