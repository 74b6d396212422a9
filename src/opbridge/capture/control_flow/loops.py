"""``while``, ``for`` and list comprehensions: iterations that Python can decide run as Python code."""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow.attributes import Attributes, NoValueBefore
from opbridge.capture.control_flow.branches import all_of, if_, not_
from opbridge.capture.control_flow.conditions import condition, on_sizes, opposite
from opbridge.capture.control_flow.items import InPlace
from opbridge.capture.control_flow.rows import Rows
from opbridge.capture.control_flow.sequences import BUILTINS, dynamic_sequence, items_of
from opbridge.capture.control_flow.site import Site, refuse
from opbridge.capture.control_flow.state import State
from opbridge.capture.control_flow.steps import DynamicSequence, NoWholeStep
from opbridge.capture.control_flow.traced_loop import TracedLoop
from opbridge.capture.control_flow.trees import tree_leaves
from opbridge.capture.control_flow.values import Contents
from opbridge.errors import CaptureError

__all__ = ["add_items", "folded", "for_", "generated", "has_items", "list_of", "quantified", "while_"]

Action = Callable[[], Any]

_UNROLLED = 64
"""The most iterations of a loop over Python objects that are captured one by one after its end depends on data."""


def while_(test: Action, body: Action, state: State, site: Site, *bounds: Action) -> None:
    """A ``while`` statement. Iterations that Python can decide run as Python code.

    Args:
        test: The condition.
        body: An iteration.
        state: The variables.
        site: The statement.
        bounds: Each returns a number of iterations that are not exceeded, where it can be computed before the loop.
    """
    while True:
        truth = condition(test())
        if not isinstance(truth, bool):
            TracedLoop(test, lambda index: body(), state, site, most=_smallest(bounds)).run()
            return
        if not truth:
            return
        body()


def _smallest(bounds: Iterable[Action]) -> Any:
    """The smallest of the numbers that can be computed; None without one."""
    found = []
    for bound in bounds:
        with contextlib.suppress(Exception):  # It may read what the loop's condition does not come to.
            found.append(bound())
    numbers = [value for value in found if type(value) in (int, torch.SymInt)]
    return functools.reduce(torch.sym_min, numbers) if numbers else None


def for_(
    iterable: Iterable[Any], body: Callable[[Any], None], goes_on: Action | None, state: State, site: Site
) -> None:
    """A ``for`` statement.

    Args:
        iterable: What it loops over.
        body: Takes an item.
        goes_on: Whether neither ``break`` nor ``return`` has ended the loop; None if it has none of them.
        state: The variables.
        site: The statement.
    """
    sequence = dynamic_sequence(iterable)
    if sequence is not None:
        _over(sequence, body, goes_on, state, site)
        return
    items = iter(iterable)
    for position, item in enumerate(items):
        if isinstance(item, Rows):  # Code that was not converted gives the elements of a list one by one.
            for_([item, *items], body, goes_on, state, site)
            return
        truth = True if goes_on is None else condition(goes_on())
        if truth is False:
            return
        if truth is not True and goes_on is not None:
            _rest(iterable, position, [item, *items], body, goes_on, state, site)
            return
        body(item)


def has_items(iterable: Any) -> Any:
    """Whether a loop has an item, where Python can't know; True where it can."""
    sequence = dynamic_sequence(iterable)
    return True if sequence is None else sequence.length >= 1


def list_of(
    site: Site,
    iterable: Iterable[Any],
    held: Callable[[], dict[str, Any]],
    parts: Callable[[Any], Sequence[Any]],
    element: Callable[..., Any],
    test: Callable[..., Any] = lambda *item: True,
) -> list[Any]:
    """A list comprehension with one ``for``.

    Args:
        site: The expression.
        iterable: What it loops over.
        held: Returns what the functions may change, by its name.
        parts: Takes an item, and returns what the functions take: the item itself, or elements of it.
        element: Takes an item, and returns the element of the list.
        test: Takes an item, and returns whether the list has an element for it.
    """
    return add_items([], site, iterable, held, parts, lambda rows, *item: rows.append(element(*item)), test)


def add_items(
    rows: list[Any],
    site: Site,
    iterable: Iterable[Any],
    held: Callable[[], dict[str, Any]],
    parts: Callable[[Any], Sequence[Any]],
    add: Callable[..., Any],
    test: Callable[..., Any] = lambda *item: True,
) -> list[Any]:
    """One of the loops of a list comprehension, as :func:`list_of`; ``add`` takes the list and an item."""
    others = held()
    state = State((), tuple, lambda values: None, ("the list", *others), lambda: [rows, *others.values()])

    def body(item: Any) -> None:
        given = parts(item)
        if_(test(*given), lambda: add(rows, *given), lambda: None, state, site)

    for_(iterable, body, None, state, site)
    return rows


def generated(
    site: Site,
    iterable: Iterable[Any],
    held: Callable[[], dict[str, Any]],
    parts: Callable[[Any], Sequence[Any]],
    element: Callable[..., Any],
    test: Callable[..., Any] = lambda *item: True,
) -> Iterable[Any]:
    """A generator expression with one ``for``, as :func:`list_of`; a list if the number of items is dynamic."""
    if dynamic_sequence(iterable) is not None:
        return list_of(site, iterable, held, parts, element, test)
    return (element(*given) for given in map(parts, iterable) if test(*given))


def quantified(
    name: str,
    function: Any,
    site: Site,
    iterable: Iterable[Any],
    held: Callable[[], dict[str, Any]],
    parts: Callable[[Any], Sequence[Any]],
    element: Callable[..., Any],
    test: Callable[..., Any] | None = None,
) -> Any:
    """``any`` and ``all`` of a generator expression.

    Args:
        name: Which one it is.
        function: What the source calls, which may be another function.
        site: The expression.
        iterable: What it loops over.
        held: Returns what the functions may change, by its name.
        parts: Takes an item, and returns what the functions take.
        element: Takes an item, and returns a truth.
        test: Takes an item, and returns whether its truth counts.
    """

    def decides(item: Any) -> Any:
        given = parts(item)
        operands = [(False, functools.partial(test, *given))] if test is not None else []
        own = (lambda: not_(element(*given))) if name == "all" else functools.partial(element, *given)
        return condition(all_of(site, *operands, (False, own)))

    if function is not getattr(builtins, name):
        pairs = map(parts, iterable)
        return function(element(*pair) for pair in pairs if test is None or test(*pair))
    if dynamic_sequence(iterable) is None:
        found = BUILTINS["any"](decides(item) for item in iterable)
        return opposite(found) if name == "all" else found
    found = folded(site, iterable, False, lambda _, item: decides(item), held(), lambda one: opposite(condition(one)))
    return opposite(condition(found)) if name == "all" else found


def folded(
    site: Site,
    iterable: Any,
    value: Any,
    step: Callable[[Any, Any], Any],
    held: Mapping[str, Any],
    goes_on: Callable[[Any], Any] | None = None,
) -> Any:
    """The value after a loop in which each item makes a new one of it.

    Args:
        site: The expression.
        iterable: What it loops over.
        value: The value before the loop.
        step: Takes the value and an item, and returns the next value.
        held: What ``step`` may change, by its name.
        goes_on: Takes the value, and returns whether there is another iteration; None if it takes all items.
    """

    def assign(values: Sequence[Any]) -> None:
        nonlocal value
        (value,) = values

    def body(item: Any) -> None:
        nonlocal value
        value = step(value, item)

    test = None if goes_on is None else lambda: goes_on(value)
    state = State(("the result",), lambda: (value,), assign, tuple(held), lambda: tuple(held.values()))
    for_(iterable, body, test, state, site)
    return value


class _Written(Exception):
    """An iteration writes into an item of the loop."""


def _over(
    sequence: DynamicSequence, body: Callable[[Any], None], goes_on: Action | None, state: State, site: Site
) -> None:
    """Trace the loop; its items are copies of the rows of a tensor unless an iteration writes into them."""
    before, contents, attributes = state.get(), Contents(state.held(), state.touched), Attributes(state)
    try:
        _in_one_form(sequence, body, goes_on, state, site)
    except _Written:
        state.set(before)
        contents.restore()
        attributes.restore()
        _in_one_form(InPlace(sequence), body, goes_on, state, site)


def _in_one_form(
    sequence: DynamicSequence, body: Callable[[Any], None], goes_on: Action | None, state: State, site: Site
) -> None:
    """Trace the loop, in the cheapest form that is possible."""
    before, contents, attributes = state.get(), Contents(state.held(), state.touched), Attributes(state)
    in_steps = goes_on is None and sequence.step > 1

    def on_item(item: Any) -> None:
        versions = [(leaf, leaf._version) for leaf in tree_leaves(item) if isinstance(leaf, Tensor)]
        body(item)
        written = [leaf for leaf, version in versions if leaf._version != version]
        if written and not isinstance(sequence, InPlace):
            raise _Written
        if not all(leaf._is_view() for leaf in written):
            refuse(site, "an iteration changes an element of a list in place", "make a new list of the results.")

    def all_of_it(fills: bool = True, with_values: bool = False) -> None:
        def iteration(index: Tensor) -> None:
            on_item(sequence.item(index))

        length = sequence.length
        TracedLoop(goes_on, iteration, state, site, length, fills=fills, with_values=with_values).run()

    def after_the_first() -> None:
        def loop() -> None:
            on_item(sequence.item(torch.zeros((), dtype=torch.int64)))
            TracedLoop(goes_on, lambda index: on_item(sequence.item(index + 1)), state, site, sequence.length - 1).run()

        with on_sizes(True):
            if_(sequence.length >= 1, loop, lambda: None, state, site)

    # The variables may change their types, and attributes may be None, in the first iteration only.
    has_first = statically_known_true(sequence.length >= 1)
    # torch fails too if its operators ask for the size of a part, which may be smaller than the others.
    errors = Exception if in_steps else CaptureError
    try:
        all_of_it(not in_steps, True)
    except _Written:
        raise
    except (errors, NoValueBefore) as error:
        others: list[Action] = [all_of_it] if in_steps or isinstance(error, NoValueBefore) else []
        steps = sequence.whole_steps() if in_steps else None
        if steps is not None:
            others.insert(0, functools.partial(_whole_steps, *steps, on_item, state, site))
        elif has_first or isinstance(error, NoValueBefore):
            others.insert(0, after_the_first)
        for other in others:
            state.set(before)
            contents.restore()
            attributes.restore()
            with contextlib.suppress(errors, NoWholeStep):
                other()
                return
        raise


def _whole_steps(
    whole: DynamicSequence, last: Any, has_last: Any, body: Callable[[Any], None], state: State, site: Site
) -> None:
    """Trace the loop over the parts of one size, and a branch for the last part, whose size is another."""
    TracedLoop(None, lambda index: body(whole.item(index)), state, site, whole.length).run()
    with on_sizes(True):
        if_(has_last, functools.partial(body, last), lambda: None, state, site)


def _rest(
    iterable: Any,
    position: int,
    rest: Sequence[Any],
    body: Callable[[Any], None],
    goes_on: Action,
    state: State,
    site: Site,
) -> None:
    """The items after the first iteration whose end depends on data."""
    sequence = items_of(iterable[position:]) if isinstance(iterable, (range, Tensor)) else None
    before, contents = state.get(), Contents(state.held(), state.touched)
    if sequence is not None:
        try:
            _over(sequence, body, goes_on, state, site)
            return
        except Exception:  # The body may need the number, as the index of a list for example.
            if len(rest) > _UNROLLED:
                raise
            state.set(before)
            contents.restore()
    for item in rest:
        if_(goes_on(), functools.partial(body, item), lambda: None, state, site)
