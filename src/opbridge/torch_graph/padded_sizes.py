"""Sizes that are padded to a multiple of a number, written so that torch simplifies them.

The sum of a size and ``(k - size % k) % k`` contains the size twice, so that padding in several stages gives
expressions for which torch takes minutes. The sum with ``k * ((size + k - 1) // k) - size`` contains it once.
"""

from __future__ import annotations

from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from opbridge.torch_graph.linear_sizes import REMAINDERS
from opbridge.torch_graph.size_branches import traced_number
from opbridge.torch_graph.size_conditions import decided

__all__ = ["lacking", "simplified_padding"]


def lacking(size: Any, multiple: Any) -> Any:
    """What a size lacks to a multiple of a number."""
    return multiple * ((size + multiple - 1) // multiple) - size


def simplified_padding(size: Any, amount: Any) -> Any:
    """The padding of a size, as :func:`lacking` writes it, if it pads to a multiple; otherwise the same object.

    The multiple may be a dynamic number that is known to be positive, as in a window that is not larger than the size.

    Args:
        size: The size.
        amount: What is added to it.
    """
    if not isinstance(amount, torch.SymInt) or not isinstance(size, torch.SymInt):
        return amount
    remainder = amount.node.expr
    if type(remainder).__name__ not in REMAINDERS:
        return amount
    number, multiple = remainder.args
    number = number.replace(lambda part: _is_remainder_by(part, multiple), lambda part: part.args[0])
    times = sympy.expand((number + size.node.expr) / multiple).as_coefficients_dict()
    env = size.node.shape_env
    is_multiple = all(factor.is_Integer and term.is_integer for term, factor in times.items())
    if not is_multiple or not decided(env, sympy.Ge(multiple, 1)):
        return amount
    known = int(multiple) if multiple.is_Integer else traced_number(env, multiple)
    return amount if known is None else lacking(size, known)


def _is_remainder_by(expression: Any, divisor: Any) -> bool:
    return type(expression).__name__ in REMAINDERS and expression.args[1] == divisor
