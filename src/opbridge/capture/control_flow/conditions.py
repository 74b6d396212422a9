"""Conditions: which of them Python can decide, and the operators ``and``, ``or``, ``not`` and ``in`` on the others."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator
from operator import and_, or_, xor
from typing import Any

import torch
from torch import Tensor

from opbridge.capture.constants import known_value
from opbridge.capture.control_flow.rows import has_rows, length, stacked
from opbridge.capture.control_flow.values import as_scalar
from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.numpy_functions import without_array
from opbridge.torch_graph.subgraphs import constant_of, is_tracing, is_unknown

__all__ = [
    "Indices",
    "as_tensor",
    "both",
    "combined",
    "condition",
    "equality",
    "identity",
    "is_dynamic",
    "on_sizes",
    "opposite",
]

_of_sizes: contextvars.ContextVar[bool] = contextvars.ContextVar("of_sizes", default=False)


@contextlib.contextmanager
def on_sizes(active: bool) -> Iterator[None]:
    """Leave conditions on the sizes of inputs to the model inside the block, if active."""
    token = _of_sizes.set(active)
    try:
        yield
    finally:
        _of_sizes.reset(token)


def is_dynamic(value: Any) -> bool:
    """Whether Python can't know a value during the capture: a tensor's, or a number that depends on data."""
    if not is_tracing():
        return False
    value = without_array(value)
    if isinstance(value, Tensor):
        return is_fake(value) and constant_of(value) is None and known_value(value) is None
    if isinstance(value, torch.SymBool):
        return is_unknown(value, of_sizes=_of_sizes.get())
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return is_unknown(value != 0, of_sizes=_of_sizes.get())
    return False


def condition(value: Any) -> Any:
    """The truth of a value: a bool if Python can decide it, else a SymBool or a bool tensor of rank 0."""
    value = without_array(value)
    if has_rows(value):
        return condition(length(value) > 0)
    if not is_dynamic(value):
        return bool(value)
    if isinstance(value, Tensor):
        if value.numel() != 1:
            return bool(value)  # Raises the error that PyTorch raises.
        value = value.reshape(())
        return value if value.dtype == torch.bool else value != 0
    return value if isinstance(value, torch.SymBool) else value != 0


def as_tensor(truth: Any) -> Tensor:
    """A result of :func:`condition` as a bool tensor of rank 0."""
    return truth if isinstance(truth, Tensor) else as_scalar(truth, torch.bool)


def opposite(truth: Any) -> Any:
    """The opposite of a result of :func:`condition`."""
    if isinstance(truth, Tensor):
        return truth.logical_not()
    return torch.sym_not(truth) if isinstance(truth, torch.SymBool) else not truth


def both(first: Any, second: Any) -> Any:
    """Whether two results of :func:`condition` hold, without deciding them."""
    if isinstance(first, bool):
        return second if first else False
    if isinstance(second, bool):
        return first if second else False
    if isinstance(first, torch.SymBool) and isinstance(second, torch.SymBool):
        return first & second
    return as_tensor(first).logical_and(as_tensor(second))


class Indices:
    """The index of a tensor with numbers among it that are known at run time, in the form that torch takes.

    torch takes a SymInt neither in ``x[index, ...] = value`` nor beside a tensor in ``x[index, tensor]``.

    Args:
        written: Whether the tensor is written into.
    """

    def __init__(self, *, written: bool) -> None:
        self._written = written

    def __getitem__(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The index."""
        key = tuple(stacked(one)[0] if has_rows(one) else one for one in key)
        if not self._written and not any(isinstance(index, Tensor) for index in key):
            return key
        return tuple(as_scalar(one, torch.int64) if isinstance(one, torch.SymInt) else one for one in key)


def combined(operator: str, a: Any, b: Any) -> Any:
    """``a & b``, ``a | b`` or ``a ^ b``; torch does not combine a tensor with a SymBool."""
    if isinstance(a, Tensor) and isinstance(b, torch.SymBool):
        b = as_tensor(b)
    elif isinstance(a, torch.SymBool) and isinstance(b, Tensor):
        a = as_tensor(a)
    return _COMBINED[operator](a, b)


def _exclusive_or(a: Any, b: Any) -> Any:
    """``a ^ b``; torch does not combine a bool with a SymBool."""
    if isinstance(b, bool):
        a, b = b, a
    if isinstance(a, bool) and isinstance(b, torch.SymBool):
        return opposite(b) if a else b
    return xor(a, b)


_COMBINED = {"BitAnd": and_, "BitOr": or_, "BitXor": _exclusive_or}


def equality(a: Any, b: Any, negated: bool) -> Any:
    """``a == b``, or ``a != b``; Python compares the elements of two tuples one by one, and decides each."""
    if torch.SymBool in (type(a), type(b)) and all(isinstance(one, (bool, torch.SymBool, Tensor)) for one in (a, b)):
        unequal = combined("BitXor", a, b)
        return unequal if negated else opposite(unequal)
    sequences = isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b)
    if not sequences or not any(isinstance(element, torch.SymInt) for element in (*a, *b)):
        return a != b if negated else a == b
    equal = functools.reduce(both, (condition(x == y) for x, y in zip(a, b, strict=True)))
    return opposite(equal) if negated else equal


def identity(a: Any, b: Any, negated: bool) -> Any:
    """``a is b``, or ``a is not b``; a bool that depends on data is ``True`` where it is equal to it."""
    is_unknown_bool = isinstance(a, torch.SymBool) or (isinstance(a, Tensor) and a.dtype == torch.bool and not a.dim())
    if isinstance(b, bool) and is_unknown_bool:
        return equality(a, b, negated)
    return a is not b if negated else a is b


def comparison(owner: Any, name: str) -> Any:
    """``torch.equal`` and the like as functions whose result is a tensor; any other attribute unchanged.

    Args:
        owner: The module ``torch``, or a tensor.
        name: The attribute.
    """
    if owner is torch:
        return _COMPARISONS.get(name) or getattr(torch, name)
    if name == "is_integer":
        return owner.is_integer if not isinstance(owner, torch.SymFloat) else lambda: math.floor(owner) == owner
    if name == "numel":
        return functools.partial(math.prod, owner) if isinstance(owner, torch.Size) else owner.numel
    return functools.partial(_COMPARISONS[name], owner) if isinstance(owner, Tensor) else getattr(owner, name)


def _equal(a: Tensor, b: Tensor) -> Any:
    return a.shape == b.shape and (a == b).all()


def _close(a: Tensor, b: Tensor, *arguments: Any, **options: Any) -> Any:
    return torch.isclose(a, b, *arguments, **options).all()


_COMPARISONS: dict[str, Any] = {"equal": _equal, "allclose": _close, "is_nonzero": condition}
