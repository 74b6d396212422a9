"""Branches on the sizes of inputs: the numbers after them, and the guards of their paths.

The internals of torch that this needs: the ``replacements``, ``var_to_range``, ``axioms``, ``divisible`` and ``guards``
of a ``ShapeEnv`` with its ``_set_replacement``, ``constrain_symbol_range`` and ``get_implications``, the
``symnode_tracker`` of a tracer, and ``Max`` and ``Min`` of ``torch.utils._sympy.functions``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._sympy.functions import Max, Min

from opbridge.torch_graph.largest_sizes import note_range
from opbridge.torch_graph.linear_sizes import REMAINDERS
from opbridge.torch_graph.size_conditions import decided
from opbridge.torch_graph.size_guards import forget_results, if_data_allow, under
from opbridge.torch_graph.subgraphs import known_outside, symbols_tracked, untracked

__all__ = [
    "guards_of_one_path",
    "is_computable",
    "join_equal_sizes",
    "reshape_result",
    "same_size",
    "selected_number",
    "state_equal_sizes",
    "state_size",
    "state_sizes",
    "traced_number",
]


@contextlib.contextmanager
def guards_of_one_path(truth: Any, taken: bool | None) -> Iterator[None]:
    """Restrict the guards on sizes inside the block to the sizes for which a branch is taken.

    Args:
        truth: The condition of the branch. If it depends on data, the guards restrict all sizes; of a number, it is
            known inside.
        taken: The value of the condition for which the branch is taken; None to restrict no size.
    """
    if not isinstance(truth, torch.SymBool):
        with if_data_allow():
            yield
        return
    if free_unbacked_symbols(truth):
        with _knowing(truth, taken), if_data_allow():
            yield
        return
    env: Any = truth.node.shape_env
    tables = (env.replacements, env.var_to_range, env.axioms)
    before, divisible, count = [dict(table) for table in tables], set(env.divisible), len(env.guards)
    try:
        with under({True: truth.node.expr, False: sympy.Not(truth.node.expr), None: sympy.false}[taken]):
            yield
    finally:
        for table, contents in zip(tables, before, strict=True):
            new = {key: value for key, value in table.items() if key not in contents and free_unbacked_symbols(key)}
            table.clear()
            table.update({**contents, **new})
        env.divisible.intersection_update(divisible)
        del env.guards[count:]
        forget_results(env)


@contextlib.contextmanager
def _knowing(truth: torch.SymBool, taken: bool | None) -> Iterator[None]:
    """Know inside the block what a condition on numbers that depend on data is."""
    env: Any = truth.node.shape_env
    known = env.get_implications(truth.node.expr if taken else sympy.Not(truth.node.expr)) if taken is not None else ()
    before = dict(env.axioms)
    env.axioms.update(known)
    forget_results(env)
    try:
        yield
    finally:
        env.axioms.clear()
        env.axioms.update(before)
        forget_results(env)


def selected_number(truth: Any, a: Any, b: Any) -> Any:
    """``a if truth else b`` of numbers that are functions of the sizes of inputs; None if they are not.

    Args:
        truth: The condition.
        a: A Python number or a dynamic number, also one of a subgraph.
        b: Such a number.
    """
    if not isinstance(truth, torch.SymBool) or not all(map(_is_of_inputs, (truth, a, b))):
        return None
    return _selected(truth, a, b)


def _selected(truth: torch.SymBool, a: Any, b: Any) -> Any:
    if isinstance(a, (bool, torch.SymBool)) and isinstance(b, (bool, torch.SymBool)):
        return (truth & a) | (torch.sym_not(truth) & b)
    kinds = {torch.SymFloat if isinstance(one, (float, torch.SymFloat)) else torch.SymInt for one in (a, b)}
    if len(kinds) > 1:
        return None
    if kinds == {torch.SymInt} and (one := _one_of_both(truth.node.shape_env, truth.node.expr, a, b)) is not None:
        return one
    are_constants = all(isinstance(one, float) and math.isfinite(one) for one in (a, b))
    one_or_zero = _one_or_zero(truth) if kinds == {torch.SymInt} or are_constants else None
    if one_or_zero is not None and kinds == {torch.SymInt}:
        number = b + one_or_zero * (a - b)
        return _multiple(truth, number, b) or _multiple(truth, number, a) or number
    if one_or_zero is not None:
        return a * one_or_zero + b * (1 - one_or_zero)
    if type(a) is type(b):
        return torch.sym_ite(truth, a, b)
    # torch.sym_ite takes no number of Python beside a dynamic one.
    return b + torch.sym_ite(truth, 1, 0) * (a - b)


def _multiple(truth: torch.SymBool, number: Any, size: Any) -> Any:
    """A number as the next multiple, where a branch pads a size to one: ``n + 4 - n % 4 if n % 4 else n``; else None.

    Sizes that are computed with it would become long expressions.
    """
    if not isinstance(number, torch.SymInt) or not isinstance(size, torch.SymInt):
        return None
    calls = (call.args[1] for call in truth.node.expr.atoms(sympy.Function) if type(call).__name__ in REMAINDERS)
    for divisor in (int(divisor) for divisor in calls if divisor.is_Integer):
        multiple = divisor * ((size + divisor - 1) // divisor)
        if decided(truth.node.shape_env, sympy.Eq(number.node.expr, multiple.node.expr)):
            return multiple
    return None


def _one_of_both(env: Any, condition: Any, a: Any, b: Any) -> Any:
    """``a if condition else b`` as one of them, their minimum or maximum, as in ``n if n < 4 else 4``; None otherwise.

    So it is if the difference of both is a multiple of that of the two sides of the condition, or of one of several
    conditions: ``h + rows if rows or columns else h`` is ``h + rows``, and so it is with ``rows > 0 or columns > 0`` if
    ``rows`` is never negative.
    """
    condition = sympy.to_nnf(condition) if isinstance(condition, sympy.Not) else condition
    if isinstance(condition, (sympy.Or, sympy.And)):
        operator, one = ("!=", a) if isinstance(condition, sympy.Or) else ("==", b)
        parts = [part for part in condition.args if isinstance(part, sympy.core.relational.Relational)]
        return (
            one
            if any(_ratio(env, part, a, b) is not None and _is_like(env, operator, part) for part in parts)
            else None
        )
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    ratio = _ratio(env, condition, a, b)
    if ratio is None and condition.rel_op in _NEXT_TO and condition.lhs.is_integer and condition.rhs.is_integer:
        # Of integers, n <= 4 is n < 5: n if n > 4 else 5 is the maximum too.
        operator, left, right = _NEXT_TO[condition.rel_op]
        ratio = _ratio(env, operator(condition.lhs + left, condition.rhs + right, evaluate=False), a, b)
    if ratio is None:
        return None
    match condition.rel_op:
        case "==":
            return b
        case "!=":
            return a
        case "<" | "<=":
            return (torch.sym_min if ratio > 0 else torch.sym_max)(a, b)
        case _:
            return (torch.sym_max if ratio > 0 else torch.sym_min)(a, b)


_NEXT_TO = {"<": (sympy.Le, 1, 0), "<=": (sympy.Lt, 0, 1), ">": (sympy.Ge, 0, 1), ">=": (sympy.Gt, 1, 0)}
"""The same comparison of two integers by another operator, and what is added to its sides."""


def _is_like(env: Any, operator: str, condition: Any) -> bool:
    """Whether a condition has the same value with this operator, as ``n % 4 > 0`` has with ``!=``."""
    if condition.rel_op == operator:
        return True
    never_otherwise = _NEVER_OTHERWISE.get((operator, condition.rel_op))
    return never_otherwise is not None and decided(env, never_otherwise(*condition.args)) is True


_NEVER_OTHERWISE = {("!=", ">"): sympy.Ge, ("!=", "<"): sympy.Le, ("==", "<="): sympy.Ge, ("==", ">="): sympy.Le}
"""What two sides must always be, for an operator to be like another."""


def _ratio(env: Any, condition: Any, a: Any, b: Any) -> Any:
    """By how much the difference of a and b is a multiple of that of the sides of a condition; None if it is none."""
    sides = sympy.expand(condition.lhs - condition.rhs).as_coefficients_dict()
    numbers = sympy.expand(_expression(a) - _expression(b)).as_coefficients_dict()
    ratios = {numbers[term] / sides[term] for term in sides} if numbers.keys() == sides.keys() else set()
    if len(ratios) == 1:
        return ratios.pop()
    # The difference of a size and its next multiple of 4 is (4 - size % 4) % 4.
    same = sympy.Eq(_expression(a) - _expression(b), condition.lhs - condition.rhs)
    return 1 if decided(env, same) else None


def _one_or_zero(truth: torch.SymBool) -> Any:
    """1 if a condition holds and 0 if not, by arithmetic; None if it does not only compare integers.

    torch can't evaluate a condition that depends on a choice, such as that of a second padding to a multiple.
    """
    number = _indicator(truth.node.expr)
    return None if number is None else traced_number(truth.node.shape_env, number)


def traced_number(env: Any, expression: Any) -> Any:
    """An expression of sympy as a dynamic number, which the program that is traced computes; None if it can't."""
    if proxy_tensor.get_proxy_mode() is None:
        return env.create_symintnode(expression, hint=None)
    return proxy_tensor._build_proxy_for_sym_expr(_tracer(), expression)


def _tracer() -> Any:
    return proxy_tensor._CURRENT_MAKE_FX_TRACER.fx_tracer  # type: ignore[union-attr]


def _indicator(condition: Any) -> Any:
    if isinstance(condition, (sympy.And, sympy.Or)):
        parts = [_indicator(part) for part in condition.args]
        of_all = Min if isinstance(condition, sympy.And) else Max
        return None if any(part is None for part in parts) else of_all(*parts)
    if isinstance(condition, sympy.Not):
        part = _indicator(condition.args[0])
        return None if part is None else 1 - part
    if not isinstance(condition, sympy.core.relational.Relational) or not all(one.is_integer for one in condition.args):
        return None
    return _COMPARED[condition.rel_op](*condition.args)


def _is_less(a: Any, b: Any) -> Any:
    return Max(0, Min(1, b - a))


def _differs(a: Any, b: Any) -> Any:
    return Min(1, Max(a - b, b - a))


_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: 1 - _differs(a, b),
    "!=": _differs,
    "<": _is_less,
    "<=": lambda a, b: 1 - _is_less(b, a),
    ">": lambda a, b: _is_less(b, a),
    ">=": lambda a, b: 1 - _is_less(a, b),
}


def state_sizes(truth: Any, result: Tensor, a: Tensor, b: Tensor) -> None:
    """State the sizes of ``a if truth else b``, where they are functions of the sizes of inputs."""
    for size, *sizes in zip(result.shape, a.shape, b.shape, strict=True):
        if all(map(_is_of_inputs, (truth, *sizes))):
            state_size(truth, size, *sizes)


def state_size(truth: Any, size: Any, a: Any, b: Any) -> None:
    """State that a size of a result is ``a if truth else b``."""
    if not isinstance(size, torch.SymInt) or not free_unbacked_symbols(size) or not isinstance(truth, torch.SymBool):
        return
    with untracked():
        number: Any = _selected(truth, a, b)
    if not isinstance(number, torch.SymInt):
        return
    env: Any = size.node.shape_env
    symbol = size.node.expr
    env._set_replacement(symbol, number.node.expr, "a size after a branch")
    # torch does not take a number that may be negative as far as it knows. Where both sizes are dynamic, the conditions
    # of a model with several stages would become too long.
    if symbol.is_Symbol and symbol not in env.replacements and (isinstance(a, int) or isinstance(b, int)):
        env._set_replacement(symbol, Max(0, number.node.expr), "a size after a branch")


def state_equal_sizes(results: Sequence[Tensor], pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """State which sizes after a branch are equal, because they are in either branch, and the range of the others.

    Args:
        results: The results of the operator.
        pairs: What each of them is on either path.
    """
    for size, sizes in join_equal_sizes(results, pairs, known_outside):
        env: Any = size.node.shape_env
        ranges = [env.bound_sympy(sympy.sympify(_expression(one))) for one in sizes]
        limits = min(one.lower for one in ranges), max(one.upper for one in ranges)
        env.constrain_symbol_range(size.node.expr, *limits)
        note_range(size, sizes, symbols_tracked())
        _state_smallest(size, sizes)


def join_equal_sizes(
    results: Sequence[Tensor], pairs: Sequence[tuple[Tensor, Tensor]], is_outside: Callable[[Any], bool]
) -> list[tuple[torch.SymInt, tuple[Any, Any]]]:
    """Make sizes after a branch one size where they are equal on either path.

    Args:
        results: The results of the operator.
        pairs: What each of them is on either path.
        is_outside: Whether a size is known before the branch.

    Returns:
        The sizes that differ, with what they are on either path.
    """
    known: dict[Any, torch.SymInt] = {}
    others: list[tuple[torch.SymInt, tuple[Any, Any]]] = []
    for result, (a, b) in zip(results, pairs, strict=True):
        for size, *sizes in zip(result.shape, a.shape, b.shape, strict=True):
            if not isinstance(size, torch.SymInt) or not free_unbacked_symbols(size):
                continue
            first = known.setdefault(tuple(map(_expression, sizes)), size)
            symbol = size.node.expr
            if symbol.is_Symbol and same_size(*sizes) and is_outside(sizes[0]):
                size.node.shape_env._set_replacement(symbol, _expression(sizes[0]), "a size after a branch")
            elif symbol.is_Symbol and same_size(first, size):
                others.append((size, (sizes[0], sizes[1])))
            elif symbol.is_Symbol:
                size.node.shape_env._set_replacement(symbol, first.node.expr, "a size after a branch")
    return others


def _state_smallest(size: torch.SymInt, sizes: Sequence[Any]) -> None:
    """State that a size after a branch is at least the smaller one of both, if it is known which one is."""
    with untracked():
        for one, other in (sizes, sizes[::-1]):
            if known_outside(one) and statically_known_true(one <= other):
                torch._check(size >= one)
                return


def reshape_result(result: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Give a flat result of a branch its shape, whose product is the number of its elements."""
    (count,) = result.shape
    with untracked():
        product = math.prod(sizes)
    if isinstance(count, torch.SymInt) and isinstance(product, torch.SymInt):
        count.node.shape_env._set_replacement(count.node.expr, product.node.expr, "a size after a branch")
    return result.reshape(sizes)


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are the same expression."""
    return bool(_expression(a) == _expression(b))


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def is_computable(number: Any) -> bool:
    """Whether the program outside can compute a number of a subgraph."""
    if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    tracer = _tracer()
    if number in tracer.symnode_tracker:
        return True
    return proxy_tensor._build_proxy_for_sym_expr(tracer, number.node.expr) is not None


def _is_of_inputs(number: Any) -> bool:
    if isinstance(number, (torch.SymBool, torch.SymInt, torch.SymFloat)):
        return not free_unbacked_symbols(number) and known_outside(number)
    return isinstance(number, (bool, int, float))
