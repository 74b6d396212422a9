"""Numbers that bound a size, or another number, that depends on data.

The internals of torch that this needs: ``bound_sympy``, ``replace`` and ``create_symintnode`` of a ``ShapeEnv``, and
``Max`` and ``Min`` of ``torch.utils._sympy.functions``.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Set
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Max, Min

from opbridge.torch_graph.subgraphs import traced_nodes, untracked
from opbridge.torch_graph.targets import target_key

__all__ = ["largest", "note_range", "note_ranges", "smallest"]

_LARGEST = 1 << 20
"""A larger bound that torch knows is that of any integer."""

_AT_MOST_ELEMENTS = {
    "aten::_unique2.default",
    "aten::masked_select.default",
    "aten::nonzero.default",
    "aten::nonzero_numpy.default",
    "aten::unique_consecutive.default",
    "aten::where.default",
}
"""Operators whose results have at most as many rows as their first argument has elements."""

_noted: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
"""For each ``ShapeEnv``, the smallest and the largest value of symbols, as expressions; None for an unknown one."""


def largest(size: Any, known: Set[Any]) -> Any:
    """A number that a size can't exceed.

    Args:
        size: The size.
        known: The data-dependent symbols that the number may consist of.

    Returns:
        The number; None if there is none.
    """
    return _bound(size, known, is_upper=True)


def smallest(size: Any, known: Set[Any]) -> Any:
    """A number that a size is not below, as :func:`largest`."""
    return _bound(size, known, is_upper=False)


def note_range(size: torch.SymInt, values: Iterable[Any], known: Set[Any]) -> None:
    """State that a size lies between the smallest and the largest one of these.

    Args:
        size: A symbol.
        values: Sizes.
        known: The data-dependent symbols that both may consist of.
    """
    with untracked():
        values = list(values)
        lower = _outermost([smallest(value, known) for value in values], is_upper=False)
        upper = _outermost([largest(value, known) for value in values], is_upper=True)
    _noted.setdefault(size.node.shape_env, {})[size.node.expr] = _expression(lower), _expression(upper)


def note_ranges(values: Iterable[Any], known: Set[Any]) -> None:
    """Keep what the graph that is being traced says of sizes in it, for code outside.

    Args:
        values: Tensors and numbers of the graph.
        known: The data-dependent symbols that the program outside has a value for.
    """
    for value in values:
        for size in value.shape if isinstance(value, Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                env: Any = size.node.shape_env
                for symbol in free_unbacked_symbols(size) - known:
                    own = env.create_symintnode(symbol, hint=None)
                    note_range(own, [own], known)


def _outermost(bounds: list[Any], is_upper: bool) -> Any:
    """The smallest or the largest of some numbers; None if it is not known which one is."""
    if None in bounds:
        return None

    def is_outermost(one: Any) -> bool:
        return all(statically_known_true(one >= other if is_upper else one <= other) for other in bounds)

    return next(filter(is_outermost, bounds), None)


def _bound(size: Any, known: Set[Any], is_upper: bool) -> Any:
    if free_unbacked_symbols(size) <= known:
        return size
    env: Any = size.node.shape_env
    with untracked():
        found = _bound_of(env.replace(size.node.expr), env, known, is_upper)
    if found is None or found.is_Integer:
        return None if found is None else int(found)
    return env.create_symintnode(found, hint=None)


def _bound_of(expression: Any, env: Any, known: Set[Any], is_upper: bool) -> Any:
    """A bound of an expression, as an expression; None if there is none."""
    if free_unbacked_symbols(expression) <= known:
        return expression
    noted = _noted.get(env, {}).get(expression, (None, None))[is_upper]
    if noted is not None and (found := _bound_of(noted, env, known, is_upper)) is not None:
        return found
    made = _largest_made(expression, known) if is_upper else None
    if made is not None:
        return _expression(made)
    between = _between(expression) if is_upper else None
    if between is not None and (most := _bound_of(between, env, known, is_upper)) is not None:
        return Max(most, 0)
    if isinstance(expression, (Max, Min)):
        of_all = [_bound_of(one, env, known, is_upper) for one in expression.args]
        return None if None in of_all else expression.func(*of_all)
    terms = sympy.expand(expression).as_coefficients_dict()
    if expression not in terms:
        bounds = [(factor, _bound_of(term, env, known, is_upper == (factor > 0))) for term, factor in terms.items()]
        if all(bound is not None for _, bound in bounds):
            return sum(factor * bound for factor, bound in bounds)
    limits = env.bound_sympy(expression)
    limit = limits.upper if is_upper else limits.lower
    return limit if limit.is_Integer and abs(limit) < _LARGEST else None


def _between(expression: Any) -> Any:
    """``end - start`` for ``Min(n, end) - Min(n, start)``, the size of a slice; None for another expression."""
    terms = {factor: term for term, factor in expression.as_coefficients_dict().items()}
    if terms.keys() != {1, -1} or not all(isinstance(term, Min) for term in terms.values()):
        return None
    starts, ends = set(terms[-1].args), set(terms[1].args)
    if len(starts - ends) != 1 or len(ends - starts) != 1:
        return None
    return (ends - starts).pop() - (starts - ends).pop()


def _largest_made(size: Any, known: Set[Any]) -> Any:
    """The largest value of a size, an expression, by the operator that makes it."""
    node = _made_by(size)
    if node is None or not node.args:
        return None
    arguments: Any = node.args
    key, first = target_key(node.target), arguments[0]
    if key == "torchvision::nms.default":
        return largest(first.meta["val"].shape[0], known)
    if key == "aten::slice.Tensor":
        return _most_in_slice([one.meta["val"] if isinstance(one, torch.fx.Node) else one for one in arguments], known)
    if key == "aten::index.Tensor":
        masks = [one.meta["val"] for one in arguments[1] if one is not None and one.meta["val"].dtype == torch.bool]
        return _most_elements(masks[0], known) if len(masks) == 1 else None
    return _most_elements(first.meta["val"], known) if key in _AT_MOST_ELEMENTS else None


def _most_in_slice(arguments: list[Any], known: Set[Any]) -> Any:
    """The largest size of ``x[start:end]``, which ``end - start`` is if this is a number, as in ``x[i : i + 4]``."""
    tensor, dim, start, end = (*arguments, *(0, 0, None)[len(arguments) - 1 :])[:4]
    count = _expression(None if start is None or end is None else end - start)
    is_known = count is not None and count.is_Integer and 0 <= count < _LARGEST
    return int(count) if is_known else largest(tensor.shape[dim], known)


def _made_by(size: Any) -> torch.fx.Node | None:
    """The first node of the traced graph whose result has this size."""

    def has_it(value: Any) -> bool:
        sizes = (one for one in getattr(value, "shape", ()) if isinstance(one, torch.SymInt))
        return any(one.node.expr == size for one in sizes)

    results = ((node, pytree.tree_leaves(node.meta.get("val"))) for node in traced_nodes())
    return next((node for node, values in results if any(map(has_it, values))), None)


def _most_elements(tensor: Tensor, known: Set[Any]) -> Any:
    sizes = [largest(size, known) for size in tensor.shape]
    return None if None in sizes else math.prod(sizes)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else None if size is None else sympy.sympify(size)
