"""Short forms of the quotients of dynamic sizes, without which sizes that are computed in several steps grow too long.

A symmetric padding of ``(n + 3) // 2 * 2 - n`` elements, half of them on each side, has the length ``n + -n // 2 +
(3 - n) // 2 + 2 * ((n + 3) // 2) + 1``. torch keeps all of these terms, in each further step inside each other, and
compares such sizes for minutes. In terms of ``n // 2`` the length is ``2 * n - 2 * (n // 2) + 4``.

A quotient that is computed with floating-point numbers, as in ``math.ceil(n / 4)``, is an integer quotient too.

The internals of torch that this needs: ``eval`` of ``FloorDiv`` in ``torch.utils._sympy.functions``, and the functions
there that round a number.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
from sympy.core.cache import clear_cache  # type: ignore[import-untyped]
from torch.utils._sympy import functions

__all__ = ["short_quotients", "without_rounding"]

FloorDiv: Any = functions.FloorDiv
_ROUNDING = (functions.CeilToInt, functions.FloorToInt, functions.TruncToInt, functions.RoundToInt)


@contextlib.contextmanager
def short_quotients() -> Iterator[None]:
    """Make torch write a quotient of sizes in its short form inside the block."""
    own, evaluate = vars(FloorDiv)["eval"], FloorDiv.eval

    def evaluated(cls: Any, base: Any, divisor: Any) -> Any:
        short = _short(base, divisor)
        return evaluate(base, divisor) if short is None else short

    FloorDiv.eval = classmethod(evaluated)
    clear_cache()  # SymPy returns quotients that it has made before, in their long form.
    try:
        yield
    finally:
        FloorDiv.eval = own
        clear_cache()


def _short(base: Any, divisor: Any) -> Any:
    """The quotient with all factors in the numerator from 0 to below the divisor; None if it has this form already.

    ``(d * q + r) // d`` is ``q + r // d`` for integers, also for negative ones, and ``(y + 1) // 2`` is ``y - y // 2``.
    A common factor of the numerator and the divisor is left out; torch finds it too, but slowly.
    """
    if not isinstance(base, (sympy.Add, sympy.Mul)) or not isinstance(divisor, sympy.Integer) or divisor < 2:
        return None
    quotient, rest = sympy.S.Zero, []
    for term in sympy.Add.make_args(base):
        factor, size = term.as_coeff_Mul()
        whole, left = divmod(factor, divisor) if factor.is_Integer and size.is_integer else (0, factor)
        quotient += whole * size
        rest.append((left, size))
    common = math.gcd(divisor, *(left for left, _ in rest)) if all(left.is_Integer for left, _ in rest) else 1
    numerator = sympy.Add(*(left / common * size for left, size in rest))
    constant, sizes = numerator.as_coeff_Add()
    if divisor / common == 2 and constant == 1 and sizes != 0 and sizes.is_integer:
        return quotient + sizes - FloorDiv(sizes, 2)
    return None if quotient == 0 and common == 1 else quotient + FloorDiv(numerator, divisor / common)


@functools.lru_cache(maxsize=4096)
def without_rounding(expression: Any) -> Any:
    """An expression in which quotients of integers that are rounded are integer quotients.

    The two are equal for sizes below 2 ** 53, which a floating-point number holds exactly.
    """
    return expression.replace(lambda part: isinstance(part, _ROUNDING), _quotient)


def _quotient(call: Any) -> Any:
    (number,) = call.args
    if isinstance(number, functions.ToFloat) and number.args[0].is_integer:
        return number.args[0]
    if not isinstance(number, functions.IntTrueDiv) or isinstance(call, functions.RoundToInt):
        return call
    numerator, divisor = number.args
    if not divisor.is_positive:
        return call
    if isinstance(call, functions.CeilToInt):
        return FloorDiv(numerator + divisor - 1, divisor)
    rounds_down = isinstance(call, functions.FloorToInt) or numerator.is_nonnegative
    return FloorDiv(numerator, divisor) if rounds_down else call
