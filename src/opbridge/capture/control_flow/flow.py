"""What converted code calls."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable
from typing import Any

from opbridge.capture.control_flow.branches import (
    all_of,
    any_of,
    for_each_outcome,
    if_,
    if_expression,
    not_,
    with_conditions,
)
from opbridge.capture.control_flow.conditions import combined, comparison, condition, equality, identity
from opbridge.capture.control_flow.list_passing import returned, with_lists
from opbridge.capture.control_flow.lookups import (
    assign,
    attribute,
    contains,
    delete,
    dict_of,
    element,
    lookup,
    read_at,
    written_at,
)
from opbridge.capture.control_flow.loops import add_items, for_, generated, has_items, list_of, quantified, while_
from opbridge.capture.control_flow.python_functions import builtin
from opbridge.capture.control_flow.rows import has_rows
from opbridge.capture.control_flow.sequences import last, of_parts, repeated, unpacked
from opbridge.capture.control_flow.site import Site, refuse
from opbridge.capture.control_flow.state import State, note_check, read
from opbridge.capture.control_flow.texts import text
from opbridge.capture.control_flow.values import UNDEFINED

__all__ = [
    "UNDEFINED",
    "Site",
    "State",
    "add_items",
    "add_yielded",
    "all_of",
    "any_of",
    "assign",
    "attribute",
    "builtin",
    "combined",
    "comparison",
    "contains",
    "delete",
    "dict_of",
    "element",
    "equality",
    "for_",
    "for_each_outcome",
    "frozenset",
    "generated",
    "has_items",
    "identity",
    "if_",
    "if_expression",
    "last",
    "list_of",
    "lookup",
    "not_",
    "of_parts",
    "passes",
    "print",
    "quantified",
    "read",
    "read_at",
    "repeated",
    "returned",
    "slice",
    "text",
    "unpacked",
    "while_",
    "with_conditions",
    "with_lists",
    "written_at",
    "yielded",
]

frozenset = builtins.frozenset
slice = builtins.slice

_MOST_YIELDED = 4096
"""The most values of a generator that Python decides one by one; it may never end."""


def print(statement: Callable[[], Any]) -> None:
    """Run a statement that only prints; without effect if it needs a value that only a run of the program has."""
    with contextlib.suppress(Exception):
        statement()


def add_yielded(rows: list[Any], value: Any, site: Site) -> None:
    """Add what a generator yields to the list that it returns."""
    if len(rows) == _MOST_YIELDED:
        refuse(site, f"a generator yields more than {_MOST_YIELDED} values", "end it after a number of values.")
    rows.append(value)


def yielded(rows: list[Any]) -> Any:
    """What a call of a generator returns: a list of a dynamic length, or an iterator."""
    return rows if has_rows(rows) else iter(rows)


def passes(test: Any, expected: bool, statement: str, raises: bool, site: Site) -> bool:
    """The test of an ``if`` or ``assert`` that only raises an error or prints.

    Args:
        test: Its value.
        expected: The result if the value depends on data: that of a run in which nothing is raised or printed.
        statement: Its source.
        raises: Whether it raises an error.
        site: Its place.
    """
    truth = condition(test)
    if isinstance(truth, bool):
        return truth
    if raises and site.in_try:
        refuse(site, "it raises an error inside a try statement", "compute both results, and select with torch.where.")
    if raises:
        note_check(site, statement)
    return expected
