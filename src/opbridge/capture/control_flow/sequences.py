"""Iterables whose length is known only at run time, and Python's functions of numbers on values without one."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow.conditions import as_tensor, condition, equality, is_dynamic, opposite
from opbridge.capture.control_flow.items import Backwards, Elements, Numbered, Pieces, Records, Sections, Together
from opbridge.capture.control_flow.list_uses import refuse_use
from opbridge.capture.control_flow.rows import (
    Rows,
    Unassigned,
    as_rows,
    columns_of,
    element,
    has_rows,
    length,
    sections,
    stacked,
    uneven_dim,
)
from opbridge.capture.control_flow.steps import DynamicSequence, Refused, Steps, known_length, varies
from opbridge.capture.control_flow.trees import tree_flatten, tree_unflatten
from opbridge.capture.control_flow.values import UNDEFINED
from opbridge.errors import CaptureError
from opbridge.torch_graph.size_conditions import number_of

__all__ = [
    "BUILTINS",
    "contains",
    "dynamic_sequence",
    "equal_elements",
    "items_of",
    "last",
    "of_parts",
    "repeated",
    "unpacked",
]


def dynamic_sequence(value: Any) -> DynamicSequence | None:
    """The items of an iterable whose length is a dynamic number; None for any other."""
    if type(value).__module__.partition(".")[0] == "tqdm":  # A progress bar.
        value = getattr(value, "iterable", None)
    if isinstance(value, Tensor) and value.dim() and varies(value.shape[0]):
        return Elements(value)
    columns = columns_of(value) if has_rows(value) else None
    if columns is not None:
        parts = [items_of(column) for column in columns[0]]
        return Records([part for part in parts if part is not None], columns[1])
    if has_rows(value):
        dim = uneven_dim(value)
        return (
            Elements(*stacked(value), are_copies=not _is_whole(value))
            if dim is None
            else Sections(*sections(value, dim), dim)
        )
    return value if isinstance(value, Refused) else None  # type: ignore[return-value]


def _is_whole(value: Any) -> bool:
    """Whether the elements of a list are the rows of one tensor, so that a change of a row changes the element."""
    return len(value) == 1 and value[0].kept is None and 0 not in value[0].values.stride()


def items_of(value: Any) -> DynamicSequence | None:
    """The items of a range, of a tensor or of a dynamic sequence by position; None for any other iterable."""
    if isinstance(value, range):
        return Steps(value.start, value.stop, value.step)
    if isinstance(value, Tensor) and value.dim():
        return Elements(value)
    return dynamic_sequence(value)


def _number(value: Any) -> Any:
    return _integer(value) if isinstance(value, Tensor) else value


def _integer(value: Any = 0, *options: Any, **named: Any) -> Any:
    if isinstance(value, Tensor) and is_dynamic(value) and value.numel() == 1:
        return value.reshape(()).to(torch.int64).item()
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return torch.sym_int(value)
    return int(value, *options, **named)


def _floating(value: Any = 0.0) -> Any:
    if isinstance(value, Tensor) and is_dynamic(value) and value.numel() == 1:
        return value.reshape(()).to(torch.float64).item()
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return torch.sym_float(value)
    return float(value)


def _truth(value: Any = False) -> Any:
    return condition(value)


def _range(*arguments: Any) -> Any:
    numbers = [_number(value) for value in arguments]
    if not any(varies(number) for number in numbers):
        return range(*numbers)
    if len(numbers) == 1:
        numbers = [0, *numbers]
    steps = Steps(*numbers)
    count = known_length(steps.length)
    return steps if count is None else [steps.start + number * steps.step for number in range(count)]


def _enumerate(items: Any, start: int = 0) -> Any:
    sequence = dynamic_sequence(items)
    return enumerate(items, start) if sequence is None else Numbered(sequence, start)


def _zip(*iterables: Any, **options: Any) -> Any:
    if any(isinstance(one, Rows) for one in iterables):  # The elements of a list: zip(*pairs).
        columns, structure = columns_of(iterables) or ([], None)
        if structure is None or len(structure.children()) != len(columns):
            raise refuse_use("zip(*...) of elements that are not alike tuples of tensors and numbers,")
        return list(map(tuple, columns))
    if all(dynamic_sequence(one) is None for one in iterables):
        return zip(*iterables, **options)  # noqa: B905
    sequences = [items_of(one) for one in iterables]
    if any(sequence is None for sequence in sequences):
        return zip(*iterables, **options)  # noqa: B905
    return Together([sequence for sequence in sequences if sequence is not None])


def _reversed(items: Any) -> Any:
    if has_rows(items):
        return element(items, slice(None, None, -1))
    if isinstance(items, Tensor):
        return items.flip(0)  # What PyTorch does: the items are parts of a copy.
    sequence = dynamic_sequence(items)
    return reversed(items) if sequence is None else Backwards(sequence)


def _length(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dim():
        return value.shape[0]
    if has_rows(value):
        return length(value)
    return value.length if isinstance(value, Refused) else len(value)  # type: ignore[attr-defined]


def _extreme(name: str, choose: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def extreme(*values: Any, **options: Any) -> Any:
        if len(values) == 1 and has_rows(values[0]) and not options:
            elements, are_numbers = stacked(values[0])
            result = elements.amin(0) if name == "min" else elements.amax(0)
            return result.item() if are_numbers else result
        items = list(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else list(values)
        if options or len(items) < 2 or not any(isinstance(one, Tensor) and is_dynamic(one) for one in items):
            return getattr(builtins, name)(*values, **options)
        result = items[0]
        for item in items[1:]:
            result = torch.where(as_tensor(condition(choose(item, result))), item, result)
        return result

    return extreme


def _sum(items: Any, start: Any = 0) -> Any:
    if not has_rows(items):
        return sum(items, start)
    elements, are_numbers = stacked(items)
    total = elements.sum(0)
    return start + (total.item() if are_numbers else total)


def _any(items: Any) -> Any:
    return opposite(_all(opposite(condition(item)) for item in items))


def _all(items: Any) -> Any:
    unknown = []
    for item in items:
        truth = condition(item)
        if truth is False:
            return False
        if truth is not True:
            unknown.append(as_tensor(truth))
    return torch.stack(unknown).all() if unknown else True


BUILTINS: dict[str, Callable[..., Any]] = {
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "reversed": _reversed,
    "len": _length,
    "bool": _truth,
    "int": _integer,
    "float": _floating,
    "min": _extreme("min", lambda a, b: a < b),
    "max": _extreme("max", lambda a, b: a > b),
    "any": _any,
    "all": _all,
    "sum": _sum,
}
"""The functions that take the place of Python's in converted code."""


def of_parts(owner: Any, name: str) -> Any:
    """``unbind``, ``split``, ``chunk`` and ``tolist`` with a dynamic number of parts; ``tensor`` with dynamic numbers.

    Args:
        owner: The module ``torch`` or a tensor; the attribute of any other object is returned unchanged.
        name: The attribute.
    """
    if owner is torch and hasattr(torch, name):
        return functools.partial(_OF_PARTS[name], getattr(torch, name))
    if isinstance(owner, Tensor) and name in ("unbind", "split", "chunk", "tolist"):
        return functools.partial(_OF_PARTS[name], getattr(type(owner), name), owner)
    return getattr(owner, name)


def _unbind(original: Callable[..., Any], input: Tensor, dim: int = 0) -> Any:
    return (Rows(input.movedim(dim, 0)),) if varies(input.shape[dim]) else original(input, dim)


def _split(original: Callable[..., Any], tensor: Tensor, split_size: Any = None, dim: int = 0, **named: Any) -> Any:
    size = named.get("split_size_or_sections", named.get("split_size", split_size))
    if has_rows(size):
        return (Rows(tensor.movedim(dim, 0), joined=dim % tensor.dim(), lengths=stacked(size)[0] + 1),)
    if isinstance(size, int) and varies(tensor.shape[dim]):
        pieces = Pieces(tensor, size, dim)
        return pieces if known_length(pieces.length) is None else original(tensor, size, dim)
    return original(tensor, size, dim)


def _chunk(original: Callable[..., Any], input: Tensor, chunks: Any, dim: int = 0) -> Any:
    if isinstance(chunks, torch.SymInt) and statically_known_true(chunks == input.shape[dim]):
        return Pieces(input, 1, dim)
    return original(input, chunks, dim)


def _tolist(original: Callable[..., Any], tensor: Tensor) -> Any:
    if not tensor.dim() or not varies(tensor.shape[0]) or any(map(varies, tensor.shape[1:])):
        return original(tensor)
    if tensor.dim() == 1:
        return [Rows(tensor, are_numbers=True)]
    structure = tree_flatten(np.zeros(tensor.shape[1:]).tolist())[1]
    return [Rows(tuple(Rows(column, are_numbers=True) for column in tensor.flatten(1).unbind(1)), structure=structure)]


def _tensor(original: Callable[..., Any], data: Any, **options: Any) -> Any:
    if isinstance(data, Steps):
        return data.numbers(**options)
    if not has_rows(data):
        return original(data, **options)
    values, are_numbers = _stacked_columns(*columns) if (columns := columns_of(data)) else stacked(data)
    dtype = torch.get_default_dtype() if are_numbers and values.is_floating_point() else values.dtype
    return values.to(options.get("device"), options.get("dtype") or dtype)


def _stacked_columns(columns: list[list[Any]], structure: Any) -> tuple[Tensor, bool]:
    """The elements of a list, which are lists or tuples of numbers, as one tensor, and whether all are numbers."""
    parts = [stacked(column) for column in columns]
    shape = np.shape(tree_unflatten(range(len(parts)), structure))
    if any(values.dim() > 1 for values, _ in parts) or math.prod(shape) != len(parts):
        raise refuse_use("torch.tensor, with elements that are not lists of numbers,")
    values = torch.stack([values for values, _ in parts], 1)
    return values.unflatten(1, shape), all(are_numbers for _, are_numbers in parts)


def _typed(dtype: torch.dtype, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    data = arguments[0] if len(arguments) == 1 and not options else None
    if isinstance(data, Steps):
        return _tensor(original, data, dtype=dtype)
    return torch.as_tensor(data, dtype=dtype) if isinstance(data, (list, tuple)) else original(*arguments, **options)


_OF_PARTS: dict[str, Callable[..., Any]] = {
    "unbind": _unbind, "split": _split, "chunk": _chunk, "tolist": _tolist, "tensor": _tensor, "as_tensor": _tensor,
    "FloatTensor": functools.partial(_typed, torch.float32), "LongTensor": functools.partial(_typed, torch.int64),
}  # fmt: skip


def contains(item: Any, container: Any) -> Any:
    """``item in container``."""
    if not isinstance(container, (list, tuple, set, frozenset)):
        return item in container
    if has_rows(container):
        return equal_elements(container, item).any()
    compared = [part for one in (item, *container) for part in (one if isinstance(one, (list, tuple)) else [one])]
    if any(isinstance(part, (torch.SymInt, torch.SymFloat)) or is_dynamic(part) for part in compared):
        return _any(equality(item, element, negated=False) for element in container)
    return item in container


def equal_elements(value: Any, item: Any) -> Tensor:
    """Which elements of a list of a dynamic length, of numbers or tensors of rank 0, are equal to this: bool."""
    elements, _ = stacked(value)
    if elements.dim() != 1:
        raise refuse_use("a comparison of its elements, which are not numbers,")
    return elements == item


def last(value: Any) -> Any:
    """The last element of a list; UNDEFINED if it has none."""
    return element(value, -1) if len(value) else UNDEFINED


def unpacked(value: Any, count: int, starred: int | None) -> Any:
    """The values for an assignment to several variables, also of a list with rows.

    Args:
        value: The list, or a tensor.
        count: The number of variables.
        starred: The position of the variable that takes the rest; None if there is none.
    """
    if starred is not None and isinstance(value, Tensor) and varies(value.shape[0]):
        value = [Rows(value)]
    if not has_rows(value):
        return value
    if starred is not None:
        after = count - starred - 1
        rest = element(value, slice(starred, -after or None))
        return [*(element(value, i) for i in range(starred)), *rest, *(element(value, i) for i in range(-after, 0))]
    torch._check(length(value) == count)
    return [element(value, i) for i in range(count)]


def repeated(a: Any, b: Any) -> Any:
    """``[...] * n`` or ``n * [...]``."""
    items, count = (a, b) if isinstance(a, list) else (b, a)
    count = number_of(count)
    if not isinstance(count, torch.SymInt):
        return items * count
    if items == [None]:
        return [Rows(Unassigned(count))]
    rows = as_rows(items[0]) if isinstance(items, list) and len(items) == 1 else None
    if rows is None:
        raise CaptureError(
            "A list of a dynamic length, [...] * n, has elements that are neither tensors nor numbers.",
            fix="leave the dimension that n is computed from out of dynamic_shapes if its size is always the same; "
            "otherwise start with an empty list, and append tensors to it.",
        )
    values = rows.elements()
    return [Rows(values.expand(torch.sym_max(count, 0), *values.shape[1:]), None, rows.are_numbers)]
