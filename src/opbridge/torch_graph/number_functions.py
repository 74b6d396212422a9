"""Functions and operators of Python's numbers, for dynamic sizes: ``math.sqrt``, ``int.bit_length``, ``//`` and ``&``.

Where a result may be rounded to a size, they compute it as Python does, to the last bit. torch has no equivalent of
some, and rounds others.

The internal of torch that this needs: ``var_to_range`` of a ``ShapeEnv``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["DYNAMIC", "FUNCTIONS"]

DYNAMIC = (torch.SymInt, torch.SymFloat)


def _square_root(value: Any) -> Any:
    return torch.sym_float(value) ** 0.5


def _wide(value: Any) -> Tensor:
    return torch.scalar_tensor(value, dtype=torch.float64)


def _whole(value: Any) -> Tensor:
    return torch.scalar_tensor(value, dtype=torch.int64)


def _logarithm(function: Callable[..., float], base: Any, value: Any) -> Any:
    """The logarithm as a function of Python returns it: ``math.log(1000, 10)`` is less than 3.

    Args:
        function: Python's function of a number.
        base: The base of the logarithm.
        value: The number.
    """
    number = _wide(value)
    logarithm = number.log() / _wide(base).log()
    if isinstance(base, int) and base > 1:
        # Engines round the quotient of two logarithms in different ways. This decides only between whole numbers.
        powers = [base**exponent for exponent in range(math.floor(63 / math.log2(base)) + 1)]
        whole = logarithm.round().clamp(0, len(powers) - 1)
        of_powers = torch.tensor(list(map(function, powers)), dtype=torch.float64)
        logarithm = torch.where(base**whole == number, of_powers[whole.long()], logarithm)
    result = logarithm.item()
    if isinstance(result, torch.SymFloat) and statically_known_true(value >= 1):
        # It may be an exponent: 2 ** ceil(log2(n)). torch keeps no range of torch._check(result >= 0).
        ranges = result.node.shape_env.var_to_range
        ranges[result.node.expr] = type(ranges[result.node.expr])(sympy.Float(0), sympy.oo)
    return result


def _log(value: Any, *base: Any) -> Any:
    if not base:
        return _wide(value).log().item()
    return _logarithm(lambda power: math.log(power, *base), base[0], value)


def _bit_length(value: Any) -> Any:
    if statically_known_true(value >= 1):
        return math.floor(math.log2(value)) + 1
    number = _whole(value).abs()
    length = ((number.clamp(min=1).double().log2().floor() + 1) * (number > 0)).long().item()
    torch._check(length >= 0)
    return length


def _hypotenuse(*values: Any) -> Any:
    return torch.stack(list(map(_wide, values))).square().sum().sqrt().item()


def _division(of_integers: Callable[..., Any], of_tensors: Callable[..., Tensor], a: Any, b: Any) -> Any:
    """``a // b`` or ``a % b``, with a floating-point number as Python computes it: ``1 // 0.1`` is 9, not 10."""
    if not {type(a), type(b)} & {float, torch.SymFloat}:
        return of_integers(a, b)
    if isinstance(a, int | torch.SymInt) and isinstance(b, float) and b and b.is_integer():
        return torch.sym_float(of_integers(a, int(b)))
    return of_tensors(_wide(a), _wide(b)).item()


def _of_integers(name: str) -> Callable[[Any, Any], Any]:
    """The operator of torch for two integers, of which one or both are dynamic."""
    forward, reflected = getattr(torch.SymInt, f"__{name}__"), getattr(torch.SymInt, f"__r{name}__")
    return lambda a, b: forward(a, b) if isinstance(a, torch.SymInt) else reflected(b, a)


def _bitwise(function: Callable[..., Tensor], a: Any, b: Any) -> Any:
    """The last bits of a size, as in ``if n & 1``, as a remainder; others by a function of tensors."""
    size, mask = (a, b) if isinstance(a, torch.SymInt) else (b, a)
    if function is torch.bitwise_and and isinstance(mask, int) and mask >= 0 and mask & (mask + 1) == 0:
        return size % (mask + 1)
    return function(_whole(a), _whole(b)).item()


_DIVISIONS = {
    "floordiv": functools.partial(_division, _of_integers("floordiv"), torch.floor_divide),
    "mod": functools.partial(_division, _of_integers("mod"), torch.remainder),
}
_OPERATORS = {
    **{(kind, name): division for kind in DYNAMIC for name, division in _DIVISIONS.items()},
    (torch.SymInt, "and"): functools.partial(_bitwise, torch.bitwise_and),
    (torch.SymInt, "or"): functools.partial(_bitwise, torch.bitwise_or),
    (torch.SymInt, "xor"): functools.partial(_bitwise, torch.bitwise_xor),
}


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda b, a: function(a, b)


def _of_tensors(function: Callable[..., Tensor]) -> Callable[..., Any]:
    return lambda *values: function(*map(_wide, values)).item()


_ELEMENTARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "erf", "exp", "exp2"),
    *("expm1", "fmod", "log1p", "pow", "sin", "sinh", "tan", "tanh"),
)
"""Functions of ``math`` that torch has under the same name."""

FUNCTIONS: Mapping[tuple[ModuleType | type, str], Callable[..., Any]] = {
    **{(kind, f"__{name}__"): function for (kind, name), function in _OPERATORS.items()},
    **{(kind, f"__r{name}__"): _swapped(function) for (kind, name), function in _OPERATORS.items()},
    (torch.SymInt, "bit_length"): _bit_length,
    (math, "sqrt"): _square_root,
    (math, "isqrt"): lambda value: math.floor(_square_root(value)),
    (math, "log"): _log,
    (math, "log2"): functools.partial(_logarithm, math.log2, 2),
    (math, "log10"): functools.partial(_logarithm, math.log10, 10),
    (math, "gcd"): lambda *values: torch.gcd(*map(_whole, values)).item(),
    (math, "hypot"): _hypotenuse,
    (math, "dist"): lambda p, q: _hypotenuse(*(a - b for a, b in zip(p, q, strict=True))),
    (math, "fsum"): lambda values: sum(values, 0.0),
    (math, "fabs"): lambda value: torch.sym_float(abs(value)),
    (math, "remainder"): _of_tensors(lambda a, b: a - (a / b).round() * b),
    **{(math, name): _of_tensors(getattr(torch, name)) for name in _ELEMENTARY},
    (np, "sqrt"): _square_root,
    (np, "ceil"): lambda value: torch.sym_float(math.ceil(value)),
    (np, "floor"): lambda value: torch.sym_float(math.floor(value)),
}
"""The replacements, by the module or the class and the name of the function that each replaces."""
