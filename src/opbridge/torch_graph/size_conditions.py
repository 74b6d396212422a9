"""Decides conditions on dynamic sizes that hold, or fail, at all sizes, such as ``2 * ((n - 1) // 2) < n``.

torch decides a condition by intervals. They lose that ``n // 2`` depends on ``n``, so that torch assumes the condition
and restricts the size, although every size fulfills it. Pooling in ceil mode has such a condition.

In a branch on a size, the condition of the branch is known: where ``n % 2 == 0``, ``n // 2 * 2`` is ``n``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from opbridge.torch_graph.linear_sizes import Case, Limits, Linear, NotLinear, cases, truth
from opbridge.torch_graph.short_sizes import short_sizes
from opbridge.torch_graph.size_guards import current_path

__all__ = ["always", "constant", "decided", "deciding_conditions", "number_of"]

_FEW = 8
"""The number of the smallest sizes that are tried one by one."""

_RELATIONS = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)


def always(condition: Any, limits: Mapping[Any, Limits], given: Sequence[Any] = ()) -> bool | None:
    """Whether a condition has the same truth value at all sizes, and which; None if it has not, or it is not decided.

    Args:
        condition: A sympy relation of integers with torch's functions ``FloorDiv``, ``CleanDiv``, ``Mod`` and
            ``PythonMod``, ``Min`` and ``Max``, and rounded quotients of ``IntTrueDiv``, or a polynomial.
        limits: The limits of each symbol.
        given: Conditions that the sizes fulfill.
    """
    if not isinstance(condition, _RELATIONS):
        return None
    if condition.atoms(sympy.Function):
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
    return tuple(part for part in parts if isinstance(part, _RELATIONS) and part.free_symbols <= symbols)


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
    raises an error for them.
    """
    for count in (0, _FEW):
        found: set[Any] = set()
        with contextlib.suppress(NotLinear):
            for case in cases((expression, *(one.lhs - one.rhs for one in given)), limits, count):
                with contextlib.suppress(ZeroDivisionError):
                    if not any(map(case.excludes, given)):
                        found.add(judged(*case.range(expression)))
                if None in found or len(found) > 1:
                    break
            else:
                return next(iter(found), None)
        if len(found - {None}) > 1:
            break
    return None


@functools.lru_cache(maxsize=4096)
def _always_of_product(condition: Any, limits: frozenset[tuple[Any, Limits]]) -> bool | None:
    """As ``_always``, of a polynomial that is a product of linear factors: ``a * b + b`` is ``(a + 1) * b``."""
    difference, known = condition.lhs - condition.rhs, dict(limits)
    if len(difference.free_symbols) < 2 or not difference.free_symbols <= known.keys():
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


@contextlib.contextmanager
def deciding_conditions() -> Iterator[None]:
    """Let torch decide these conditions, and know these numbers, inside the block, instead of assuming them.

    Sizes have a short form there, for long ones are not decided within a reasonable time.

    It uses ``ShapeEnv._maybe_evaluate_static``, to which torch passes a condition before it assumes it, and
    ``var_to_range``.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    own = ShapeEnv._maybe_evaluate_static

    @functools.wraps(own)  # torch empties its cache, which is an attribute.
    def evaluate(env: Any, expression: Any, **options: Any) -> Any:
        result = own(env, expression, **options)
        if result is not None or options.get("unbacked_only"):
            return result
        if isinstance(expression, _RELATIONS) and _may_be_decided(expression):
            result = decided(env, expression)
        elif expression.is_integer and expression.atoms(sympy.Function):
            expression = env.simplify(expression)
            result = constant(expression, _known_limits(env, expression), _path_of_example(env))
        return None if result is None else sympy.sympify(result)

    ShapeEnv._maybe_evaluate_static = evaluate  # type: ignore[method-assign, assignment]
    try:
        with short_sizes():
            yield
    finally:
        ShapeEnv._maybe_evaluate_static = own  # type: ignore[method-assign]


def decided(env: Any, condition: Any) -> bool | None:
    """:func:`always` with what a ``ShapeEnv`` knows."""
    condition = env.simplify(condition)
    return always(condition, _known_limits(env, condition), _path_of_example(env))


def number_of(size: Any) -> Any:
    """A dynamic size as an int if it is the same number at all sizes of the inputs; otherwise the same object."""
    if not isinstance(size, torch.SymInt):
        return size
    env: Any = size.node.shape_env
    number = env._maybe_evaluate_static(size.node.expr)
    return size if number is None else int(number)


def _path_of_example(env: Any) -> list[Any]:
    """The conditions of the branches that are being traced, if the example takes them.

    In other branches torch refuses a decision that differs from the value of the condition in the example.
    """
    path = list(map(env.replace, current_path()))
    return path if all(condition.xreplace(env.var_to_val) == sympy.true for condition in path) else []


def _known_limits(env: Any, expression: Any) -> dict[Any, Limits]:
    limits = {symbol: _limits(env.var_to_range.get(symbol)) for symbol in expression.free_symbols}
    return {symbol: limit for symbol, limit in limits.items() if limit is not None}


def _may_be_decided(expression: Any) -> bool:
    is_product = any(len(product.free_symbols) > 1 for product in expression.atoms(sympy.Mul))
    return is_product or bool(expression.atoms(sympy.Function))


def _limits(found: Any) -> Limits | None:
    """The range that torch knows of a symbol; None if it has no lower limit, or is no range of integers."""
    if found is None or not found.lower.is_Integer:
        return None
    return int(found.lower), int(found.upper) if found.upper.is_Integer else None
