"""Python's functions that converted code calls in the place of its builtins and of those of functools and itertools."""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from opbridge.capture.control_flow.items import After, Pairs, Pieces, Product, Together
from opbridge.capture.control_flow.loops import folded, list_of
from opbridge.capture.control_flow.rows import Rows, columns_of, element, has_rows, stacked
from opbridge.capture.control_flow.sequences import BUILTINS, dynamic_sequence, items_of
from opbridge.capture.control_flow.site import Site
from opbridge.capture.control_flow.steps import DynamicSequence, Steps
from opbridge.torch_graph.ordering import order_of_columns

__all__ = ["builtin", "ordered"]

Held = Callable[[], dict[str, Any]]


def builtin(name: str, function: Any, site: Site, held: Held = dict) -> Any:
    """The function to call where converted code calls one of Python's.

    Args:
        name: Its name in the source.
        function: What the source calls; returned unchanged if it is not Python's, or its replacement in a capture.
        site: The call.
        held: Returns what the functions among its arguments may change, by its name.
    """
    if getattr(function, "original", function) not in (*_ORIGINALS[name], getattr(builtins, name, None)):
        return function
    if name not in _OF_ITEMS:
        return BUILTINS[name]

    def call(*arguments: Any, **named: Any) -> Any:
        given = {key: _counterpart(value) for key, value in named.items()}
        return _OF_ITEMS[name](site, held, function, *map(_counterpart, arguments), **given)

    return call


def _counterpart(argument: Any) -> Any:
    """An argument; a function of Python, as in ``map(int, row)``, as the one to call in its place."""
    found = (one for name, one in BUILTINS.items() if argument is getattr(builtins, name))
    return next(found, argument)


def _alone(item: Any) -> tuple[Any]:
    return (item,)


def _list(site: Site, held: Held, original: Any, items: Any = ()) -> Any:
    if isinstance(items, Steps):
        return original([Rows(items.numbers(), are_numbers=True)])
    if isinstance(items, Pieces):
        return original(items.as_list())
    sequence = dynamic_sequence(items)
    if sequence is None or has_rows(items):
        return original(items)
    if isinstance(items, Tensor):
        return original([Rows(items)])
    return original(list_of(site, items, held, _alone, lambda item: item))


def _map(site: Site, held: Held, original: Any, function: Any, *iterables: Any) -> Any:
    if all(dynamic_sequence(one) is None for one in iterables):
        return original(function, *iterables)
    return list_of(site, BUILTINS["zip"](*iterables), held, tuple, function)


def _filter(site: Site, held: Held, original: Any, function: Any, items: Any) -> Any:
    found = list_of(site, items, held, _alone, lambda item: item, function or (lambda item: item))
    return found if has_rows(found) else iter(found)


def _reduce(site: Site, held: Held, original: Any, function: Any, items: Any, *initial: Any) -> Any:
    sequence = dynamic_sequence(items)
    return (
        original(function, items, *initial) if sequence is None else _folded(site, held, function, sequence, *initial)
    )


def _accumulate(
    site: Site, held: Held, original: Any, items: Any, func: Any = operator.add, *, initial: Any = None
) -> Any:
    sequence = dynamic_sequence(items)
    if sequence is None:
        return original(items, func, initial=initial)
    rows: list[Any] = []
    _folded(site, held, func, sequence, *(() if initial is None else (initial,)), rows=rows)
    return rows


def _folded(
    site: Site, held: Held, function: Any, items: DynamicSequence, *initial: Any, rows: list[Any] | None = None
) -> Any:
    """``functools.reduce``, with all its values in ``rows`` if these are given."""
    value = initial[0] if initial else items.item(torch.zeros((), dtype=torch.int64))
    if rows is None:
        return folded(site, items if initial else After(items), value, function, held())
    rows.append(value)

    def step(value: Any, item: Any) -> Any:
        rows.append(function(value, item))
        return rows[-1]

    return folded(site, items if initial else After(items), value, step, {"the list": rows, **held()})


def _pairwise(site: Site, held: Held, original: Any, items: Any) -> Any:
    sequence = dynamic_sequence(items)
    return original(items) if sequence is None else Together([sequence, After(sequence)])


def _product(site: Site, held: Held, original: Any, *iterables: Any, repeat: int = 1) -> Any:
    sequences = [items_of(one) for one in iterables]
    found = [sequence for sequence in sequences if sequence is not None]
    if all(dynamic_sequence(one) is None for one in iterables) or len(found) < len(sequences):
        return original(*iterables, repeat=repeat)
    return Product(found * repeat)


def _combinations(site: Site, held: Held, original: Any, items: Any, r: int) -> Any:
    sequence = dynamic_sequence(items) if r == 2 else None
    return original(items, r) if sequence is None else Pairs(sequence)


def _chain(site: Site, held: Held, original: Any, *iterables: Any) -> Any:
    if all(dynamic_sequence(one) is None for one in iterables):
        return original(*iterables)
    return [item for one in iterables for item in _list(site, held, list, one)]


def ordered(site: Site, items: Any, *, key: Any = None, reverse: bool = False, held: Held = dict) -> Any:
    """``sorted``, also of an iterable whose length is known only at run time."""
    if dynamic_sequence(items) is None:
        return sorted(items, key=key, reverse=reverse)
    values = _list(site, held, list, items)
    order = order_of_columns(_keys(site, held, values, key), reverse)
    columns, structure = columns_of(values) or ([values], None)
    parts = [(elements[order], are_numbers) for elements, are_numbers in map(stacked, columns)]
    found = [Rows(elements, are_numbers=are_numbers) for elements, are_numbers in parts]
    return found if structure is None else [Rows(tuple(found), structure=structure)]


def _sorted(site: Site, held: Held, original: Any, items: Any, *, key: Any = None, reverse: bool = False) -> Any:
    return ordered(site, items, key=key, reverse=reverse, held=held)


def _keys(site: Site, held: Held, values: list[Any], key: Any) -> list[Tensor]:
    """The keys of the elements of a list, or the parts of keys that are tuples: shape (n,)."""
    keys = values if key is None else list_of(site, values, held, _alone, key)
    columns, _ = columns_of(keys) or ([keys], None)
    return [stacked(column)[0].flatten() for column in columns]


def _extreme(name: str) -> Callable[..., Any]:
    def extreme(site: Site, held: Held, original: Any, *values: Any, **options: Any) -> Any:
        if options.keys() != {"key"} or len(values) != 1 or dynamic_sequence(values[0]) is None:
            return BUILTINS[name](*values, **options)
        items = _list(site, held, list, values[0])
        order = order_of_columns(_keys(site, held, items, options["key"]), reverse=name == "max")
        return element(items, order[0])

    return extreme


_OF_ITEMS: Mapping[str, Callable[..., Any]] = {
    "list": _list, "tuple": _list, "map": _map, "filter": _filter, "sorted": _sorted, "reduce": _reduce,
    "min": _extreme("min"), "max": _extreme("max"), "accumulate": _accumulate, "pairwise": _pairwise,
    "product": _product, "combinations": _combinations, "chain": _chain,
}  # fmt: skip
"""The functions that may loop over items; they take the call, what it may change, and the function of Python."""

_OWNERS = (builtins, functools, itertools)
_ORIGINALS = {
    name: [getattr(owner, name) for owner in _OWNERS if hasattr(owner, name)] for name in (*BUILTINS, *_OF_ITEMS)
}
