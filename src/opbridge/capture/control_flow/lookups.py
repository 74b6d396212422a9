"""Lookups by what is known only at run time: ``choices[n % 3]``, ``cache[n]``, ``experts[f"expert_{n}"]``."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow import python_functions, rows, sequences
from opbridge.capture.control_flow.branches import if_expression
from opbridge.capture.control_flow.conditions import Indices, condition, equality, is_dynamic, opposite
from opbridge.capture.control_flow.list_uses import refuse_use
from opbridge.capture.control_flow.site import Site
from opbridge.capture.control_flow.state import note_check
from opbridge.capture.control_flow.texts import Text

__all__ = [
    "assign",
    "attribute",
    "contains",
    "delete",
    "dict_of",
    "element",
    "forgetting_keys",
    "lookup",
    "read_at",
    "written_at",
]

read_at = Indices(written=False)
written_at = Indices(written=True)

_LISTS = (list, tuple, torch.nn.ModuleList, torch.nn.ParameterList)
_DICTS = (dict, torch.nn.ModuleDict, torch.nn.ParameterDict)

_written: contextvars.ContextVar[list[dict[Any, Any]] | None] = contextvars.ContextVar("written", default=None)


@dataclasses.dataclass(frozen=True)
class _Key:
    """A key of a dict with dynamic sizes, which have no hash value.

    Attributes:
        text: The key, on torch's symbols.
        value: The key.
    """

    text: str
    value: Any = dataclasses.field(compare=False)


@contextlib.contextmanager
def forgetting_keys() -> Iterator[None]:
    """Remove what was stored under dynamic sizes inside the block from the dicts afterwards."""
    token = _written.set([])
    try:
        yield
    finally:
        for one in _written.get() or ():
            for key in [key for key in one if isinstance(key, _Key)]:
                del one[key]
        _written.reset(token)


def _as_key(index: Any) -> Any:
    """An index as a key of a dict."""
    parts = index if isinstance(index, tuple) else (index,)
    return _Key(str(index), index) if any(isinstance(part, torch.SymInt) for part in parts) else index


def _has_keys(value: Any, index: Any) -> bool:
    """Whether a value is a dict, and which of its keys is equal to an index depends on data or on sizes."""
    if not isinstance(value, _DICTS):
        return False
    return isinstance(index, Text) or any(isinstance(key, _Key) for key in (*value, _as_key(index)))


def _equal(key: Any, index: Any) -> Any:
    if isinstance(index, Text) and isinstance(key, str):
        return index.equals(key)
    return equality(key.value if isinstance(key, _Key) else key, index, negated=False)


def _choice(site: Site, cases: Iterable[tuple[Any, Any]], otherwise: Any) -> Any:
    """The value of the first case whose condition holds."""
    remaining = []
    for test, value in cases:
        truth = condition(test)
        if truth is True:
            otherwise = value
            break
        if truth is not False:
            remaining.append((truth, value))
    for truth, value in reversed(remaining):
        otherwise = if_expression(truth, functools.partial(_same, value), functools.partial(_same, otherwise), site)
    return otherwise


def _same(value: Any) -> Any:
    return value


def element(site: Site, value: Any, index: Any) -> Any:
    """``value[index]``, also of a list, a tuple or a dict with a dynamic number."""
    if isinstance(value, Tensor) and isinstance(index, (tuple, slice)):
        return _part(value, read_at[index] if isinstance(index, tuple) else (index,))
    if _has_keys(value, index):
        return _value_of(site, value, index)
    if isinstance(index, torch.SymBool) and isinstance(value, _LISTS) and not rows.has_rows(value):
        return _choice(site, [(index, value[1])], value[0])
    if (
        isinstance(index, Tensor)
        and isinstance(value, _LISTS)
        and all(type(one) is int and one == 1 for one in index.shape)
    ):
        index = index.reshape(())
    is_number = isinstance(index, torch.SymInt) or (isinstance(index, Tensor) and not index.dim() and is_dynamic(index))
    if not is_number or not isinstance(value, _LISTS) or rows.has_rows(value) or rows.are_stackable(value):
        return rows.element(value, index)
    items = list(value)
    position = index % len(items)
    cases = [(position == number, item) for number, item in enumerate(items)]
    return _choice(site, cases[:-1], items[-1])


def _part(value: Tensor, index: tuple[Any, ...]) -> Tensor:
    """``value[index]``; where a slice is known to be inside, as ``x[:, i : i + 4]`` in a loop, with its size."""
    if not all(one is Ellipsis or isinstance(one, (int, torch.SymInt, slice)) for one in index):
        return value[index]
    missing = value.dim() - sum(one is not Ellipsis for one in index)
    dims = [dim for one in index for dim in ([one] if one is not Ellipsis else [slice(None)] * missing)]
    dims += [slice(None)] * (value.dim() - len(dims))
    pairs = [(one, size) for one, size in zip(dims, value.shape, strict=False) if isinstance(one, slice)]
    result = value[index]
    sizes = [_known_size(one, size) for one, size in pairs]
    if all(size is None for size in sizes) or len(sizes) != result.dim():
        return result
    return result.expand([-1 if size is None else size for size in sizes])


def _known_size(part: slice, size: Any) -> int | None:
    """The number of elements of a slice that begins at a number of an iteration, if it is the same in each."""
    length = part.stop - part.start if isinstance(part.start, torch.SymInt) and part.stop is not None else None
    if not isinstance(part.stop, torch.SymInt) or part.step not in (None, 1) or not is_dynamic(part.start):
        return None
    is_inside = statically_known_true(part.stop <= size) and statically_known_true(part.start >= 0)
    number = length.node.expr if isinstance(length, torch.SymInt) else length
    return int(number) if is_inside and number is not None and not getattr(number, "free_symbols", ()) else None


def _value_of(site: Site, value: Any, index: Any, *default: Any) -> Any:
    """The value of a dict that was stored last under a key that is equal to an index."""
    cases = [(_equal(key, index), one) for key, one in reversed([*value.items()])]
    cases = [(test, one) for test, one in cases if test is not False]
    if not default and cases and _as_key(index) not in value:
        note_check(site, f"{index} is one of the keys")
        *cases, (_, last) = cases
        return _choice(site, cases, last)
    if not default and not cases:
        raise KeyError(index)
    return _choice(site, cases, *(default or (None,)))


def assign(value: Any, index: Any, new: Any) -> None:
    """``value[index] = new``, also of a dict with a dynamic number."""
    if _has_keys(value, index):
        written = _written.get()
        if written is not None and not any(value is one for one in written):
            written.append(value)
        value.pop(_as_key(index), None)
        value[_as_key(index)] = new
    elif isinstance(value, Tensor) and isinstance(index, tuple):
        value[written_at[index]] = new
    else:
        rows.assign(value, index, new)


def dict_of(*items: tuple[Any, Any]) -> dict[Any, Any]:
    """``{key: value, ...}``."""
    result: dict[Any, Any] = {}
    for key, value in items:
        assign(result, key, value)
    return result


def contains(item: Any, container: Any, negated: bool) -> Any:
    """``item in container``, or ``item not in container``."""
    if _has_keys(container, item):
        found = _as_key(item) in container or sequences.contains(True, [_equal(key, item) for key in container])
    else:
        found = sequences.contains(item, container)
    return opposite(condition(found)) if negated else found


def _popped(owner: list[Any], index: int = -1) -> Any:
    """``pop`` of a list whose length is known only at run time."""
    value = rows.element(owner, index)
    delete(owner, index)
    return value


def delete(value: Any, index: Any) -> None:
    """``del value[index]``, also of a list whose length is known only at run time."""
    if not isinstance(value, list) or not rows.has_rows(value):
        del value[index]
        return
    part = index if isinstance(index, slice) else slice(index, index + 1 if index != -1 else None)
    if part.step not in (None, 1) or not (part.start in (None, 0) or part.stop is None or part is not index):
        raise refuse_use("the deletion of a slice from its middle")
    rest = rows.element(value, slice(part.stop, None)) if part.stop is not None else ()
    value[:] = [*rows.element(value, slice(None, part.start or 0)), *rest]


def _sort(site: Site, owner: list[Any], *, key: Any = None, reverse: bool = False) -> None:
    """``sort`` of a list."""
    owner[:] = python_functions.ordered(site, owner, key=key, reverse=reverse)


def attribute(site: Site, owner: Any, name: str, *default: Any) -> Any:
    """``getattr``, also of a name with a dynamic number."""
    if not isinstance(name, Text):
        return getattr(owner, name, *default)
    found = {one: getattr(owner, one) for one in dir(owner) if name.equals(one) is not False}
    return _value_of(site, found, name, *default)


def lookup(owner: Any, name: str, site: Site) -> Any:
    """``index`` and ``count`` of a list or a tuple, and ``get`` of a dict, for dynamic numbers, and ``pop`` of rows.

    ``sort`` of a list too.

    Args:
        owner: The list, tuple or dict; the attribute of any other object is returned unchanged.
        name: The attribute.
        site: The call.
    """
    own = getattr(owner, name)
    if name == "get" and isinstance(owner, _DICTS):
        return lambda key, default=None: (
            _value_of(site, owner, key, default) if _has_keys(owner, key) else own(key, default)
        )
    if name == "pop" and isinstance(owner, list) and rows.has_rows(owner):
        return functools.partial(_popped, owner)
    if name == "sort" and isinstance(owner, list):
        return functools.partial(_sort, site, owner)
    if name in ("get", "pop", "sort") or not isinstance(owner, (list, tuple)):
        return own

    def of_numbers(item: Any, *limits: Any) -> Any:
        if rows.has_rows(owner) and not limits:
            found = sequences.equal_elements(owner, item)
            if name == "count":
                return found.sum().item()
            note_check(site, f"{item} is in the list")
            return found.to(torch.int64).argmax().item()
        if limits or not any(isinstance(one, torch.SymInt) for one in (item, *owner)):
            return own(item, *limits)
        if name == "count":
            return sum(_choice(site, [(_equal(one, item), 1)], 0) for one in owner)
        cases = [(_equal(one, item), number) for number, one in enumerate(owner)]
        return _choice(site, cases[:-1], len(owner) - 1)

    return of_numbers
