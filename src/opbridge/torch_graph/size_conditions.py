"""Decides conditions on dynamic sizes that hold, or fail, at all sizes, such as ``2 * ((n - 1) // 2) < n``.

torch decides a condition by intervals. They lose that ``n // 2`` depends on ``n``, so that torch assumes the condition
and restricts the size, although every size fulfills it. Pooling in ceil mode has such a condition.

In a branch on a size, the condition of the branch is known: where ``n % 2 == 0``, ``n // 2 * 2`` is ``n``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from opbridge.torch_graph.all_sizes import RELATIONS, always, constant
from opbridge.torch_graph.divisible_sizes import counted, facts_of
from opbridge.torch_graph.short_sizes import short_sizes
from opbridge.torch_graph.size_guards import current_path

__all__ = ["decided", "deciding_conditions", "number_of"]


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
        if isinstance(expression, RELATIONS) and _may_be_decided(expression):
            result = decided(env, expression)
        elif expression.is_integer and expression.atoms(sympy.Function):
            result = _judged(constant, env, expression)
        return None if result is None else sympy.sympify(result)

    ShapeEnv._maybe_evaluate_static = evaluate  # type: ignore[method-assign, assignment]
    try:
        with short_sizes():
            yield
    finally:
        ShapeEnv._maybe_evaluate_static = own  # type: ignore[method-assign]


def decided(env: Any, condition: Any) -> bool | None:
    """:func:`always` with what a ``ShapeEnv`` knows."""
    return _judged(always, env, condition)  # type: ignore[no-any-return]


def _judged(judge: Callable[..., Any], env: Any, expression: Any) -> Any:
    expression = env.simplify(expression)
    facts = facts_of(env, expression)
    path = [counted(facts, condition) for condition in _path_of_example(env)]
    return judge(counted(facts, expression), facts.limits_counted, path)


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


def _may_be_decided(expression: Any) -> bool:
    is_product = any(len(product.free_symbols) > 1 for product in expression.atoms(sympy.Mul))
    return is_product or bool(expression.atoms(sympy.Function))
