"""What holds of dynamic sizes at all of their values, such as ``2 * ((n - 1) // 2) < n``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy.core.function import Application  # type: ignore[import-untyped]

from opbridge.torch_graph.linear_sizes import Case, Limits, Linear, NotLinear, cases, some_sizes, truth

__all__ = ["RELATIONS", "always", "constant"]

_FEW = 8
"""The number of the smallest sizes that are tried one by one."""

_MOST_PARTS = 6
"""The number of sizes, minima and maxima of a polynomial that is factored: twice as many take minutes."""

RELATIONS = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)


def always(condition: Any, limits: Mapping[Any, Limits], given: Sequence[Any] = ()) -> bool | None:
    """Whether a condition has the same truth value at all sizes, and which; None if it has not, or it is not decided.

    Args:
        condition: A sympy relation of integers with torch's functions ``FloorDiv``, ``CleanDiv``, ``Mod`` and
            ``PythonMod``, ``Min`` and ``Max``, and rounded quotients of ``IntTrueDiv``, or a polynomial.
        limits: The limits of each symbol.
        given: Conditions that the sizes fulfill.
    """
    if condition in (sympy.true, sympy.false):
        return bool(condition)
    if not isinstance(condition, RELATIONS):
        return None
    if condition.atoms(sympy.Function) or len(condition.free_symbols) < 2:
        return _without_and_with(_always, condition, limits, given)  # type: ignore[no-any-return]
    try:
        return _always_of_product(condition, frozenset(limits.items()))
    except NotLinear:
        return None


def constant(expression: Any, limits: Mapping[Any, Limits], given: Sequence[Any] = ()) -> int | None:
    """The number that an expression is at all sizes, such as 3 for ``(4 * n - 1) // n``; None if it is not known.

    Args:
        expression: An integer of sympy, with the functions that :func:`always` takes.
        limits: The limits of each symbol.
        given: Conditions that the sizes fulfill.
    """
    return _without_and_with(_constant, expression, limits, given)  # type: ignore[no-any-return]


def _without_and_with(
    judge: Callable[..., Any], expression: Any, limits: Mapping[Any, Limits], given: Sequence[Any]
) -> Any:
    known = frozenset(limits.items())
    result = judge(expression, known, ())
    about = _about(expression, given) if result is None and given else ()
    return judge(expression, known, about) if about else result


def _about(expression: Any, given: Sequence[Any]) -> tuple[Any, ...]:
    """Those of the conditions that say something about the symbols of an expression alone."""
    parts = [part for condition in given for part in sympy.And.make_args(sympy.to_nnf(condition))]
    symbols = expression.free_symbols
    return tuple(part for part in parts if isinstance(part, RELATIONS) and part.free_symbols <= symbols)


@functools.lru_cache(maxsize=4096)
def _always(condition: Any, limits: frozenset[tuple[Any, Limits]], given: tuple[Any, ...]) -> bool | None:
    judged = functools.partial(truth, condition)
    result: bool | None = _at_all_sizes(judged, condition.lhs - condition.rhs, dict(limits), given)
    return result


@functools.lru_cache(maxsize=4096)
def _constant(expression: Any, limits: frozenset[tuple[Any, Limits]], given: tuple[Any, ...]) -> int | None:
    number: int | None = _at_all_sizes(lambda low, high: low if low == high else None, expression, dict(limits), given)
    return number


def _at_all_sizes(
    judged: Callable[[float, float], Any], expression: Any, limits: Mapping[Any, Limits], given: Sequence[Any]
) -> Any:
    """What a function of the smallest and the largest value of an expression is at all sizes; None if it is not known.

    If it is not known for all sizes of a rest together, the smallest sizes are tried one by one: only there may a
    divisor be 0, or the larger one of two numbers another. Sizes at which a divisor is 0 do not count, because Python
    raises an error for them. A few sizes are tried first, because most functions are not the same at all.
    """
    if _differs_at_some(judged, expression, limits, given):
        return None
    for count in (0, _FEW):
        found: set[Any] = set()
        with contextlib.suppress(NotLinear):
            for case in cases((expression, *(one.lhs - one.rhs for one in given)), limits, count):
                for low, high in _ranges(expression, case, given):
                    found.add(judged(low, high))
                if None in found or len(found) > 1:
                    break
            else:
                return next(iter(found), None)
        if len(found - {None}) > 1:
            break
    return None


def _ranges(expression: Any, case: Case, given: Sequence[Any]) -> Iterator[tuple[float, float]]:
    """The ranges of the values of an expression in the parts of a case in which it is linear."""
    if any(map(case.excludes, given)):
        return
    try:
        yield case.range(expression)
    except ZeroDivisionError:
        return
    except NotLinear as error:
        if error.turn is None:
            raise
        for part in case.parts(error.turn):
            yield from _ranges(expression, part, given)


def _differs_at_some(
    judged: Callable[[float, float], Any], expression: Any, limits: Mapping[Any, Limits], given: Sequence[Any]
) -> bool:
    found: set[Any] = set()
    for sizes in some_sizes(expression, limits):
        with contextlib.suppress(NotLinear, ZeroDivisionError):
            if not any(map(sizes.excludes, given)):
                found.add(judged(*sizes.range(expression)))
    return len(found) > 1


@functools.lru_cache(maxsize=4096)
def _always_of_product(condition: Any, limits: frozenset[tuple[Any, Limits]]) -> bool | None:
    """As ``_always``, of a polynomial that is a product of linear factors: ``a * b + b`` is ``(a + 1) * b``."""
    difference, known = condition.lhs - condition.rhs, dict(limits)
    parts = difference.free_symbols | difference.atoms(Application)
    if not difference.free_symbols <= known.keys() or len(parts) > _MOST_PARTS:
        return None
    number, factors = sympy.factor_list(difference)
    if not number.is_Integer:
        return None
    low = high = float(number)
    sizes = Case({symbol: Linear(0, {symbol: 1}) for symbol in known}, known)
    for factor, power in factors:
        ends = sizes.value(factor).range(known)
        for _ in range(power):
            products = [a * b if a and b else 0.0 for a in (low, high) for b in ends]
            low, high = min(products), max(products)
    return truth(condition, low, high)
