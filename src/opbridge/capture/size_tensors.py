"""Small tensors of sizes, such as ``torch.tensor(x.shape[2:])``, whose elements are numbers of the graph.

torch reads an element of any tensor as a new number, of which it knows nothing: ``torch.full((2,), n).max().item()``
would not be ``n``. The elements are computed beside the tensors, as ints and ``torch.SymInt``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Elements", "computed_elements", "elements_read"]

Elements = np.ndarray[Any, Any]
"""Objects that are ints or ``torch.SymInt``; the array broadcasts to the shape of the tensor."""

_MOST_ELEMENTS = 64
_SIZES = (int, torch.SymInt)
_DTYPES = (torch.int32, torch.int64)

_larger = np.frompyfunc(torch.sym_max, 2, 1)
_smaller = np.frompyfunc(torch.sym_min, 2, 1)

_CREATIONS = {torch.scalar_tensor: 0, torch.full: 1, Tensor.new_full: 2, torch.full_like: 1}
"""Functions that make a tensor of one number, and the position of it. torch makes ``tensor([m, n])`` of those."""

_JOINS: dict[Any, Callable[..., Elements]] = {torch.stack: np.stack, torch.cat: np.concatenate}
_UNCHANGED = {Tensor.to, Tensor.type, Tensor.long, Tensor.int, Tensor.cpu, Tensor.clone, Tensor.detach, torch.clone}
_RESHAPED = {
    getattr(owner, name)
    for owner in (Tensor, torch)
    for name in ("view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "expand", "ravel")
    if hasattr(owner, name)
}
_PARTS = {Tensor.unbind, torch.unbind}
_ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    **dict.fromkeys((Tensor.add, Tensor.__add__, Tensor.__radd__, torch.add), operator.add),
    **dict.fromkeys((Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.mul), operator.mul),
    **dict.fromkeys((Tensor.sub, Tensor.__sub__, torch.sub), operator.sub),
    **dict.fromkeys((Tensor.floor_divide, Tensor.__floordiv__, torch.floor_divide), operator.floordiv),
    **dict.fromkeys((Tensor.maximum, torch.maximum), _larger),
    **dict.fromkeys((Tensor.minimum, torch.minimum), _smaller),
    Tensor.__rsub__: lambda a, b: b - a,
}  # fmt: skip
_REDUCTIONS: dict[Any, Callable[[Elements], Any]] = {
    **dict.fromkeys((Tensor.max, torch.max, Tensor.amax, torch.amax), _larger.reduce),
    **dict.fromkeys((Tensor.min, torch.min, Tensor.amin, torch.amin), _smaller.reduce),
    **dict.fromkeys((Tensor.prod, torch.prod), np.multiply.reduce),
    **dict.fromkeys((Tensor.sum, torch.sum), np.add.reduce),
}  # fmt: skip
_OF_UNIFORM = {Tensor.max, torch.max, Tensor.min, torch.min, Tensor.amax, torch.amax, Tensor.amin, torch.amin}
"""The reductions of equal elements that do not depend on their number."""


def elements_read(func: Any, elements: Elements, tensor: Tensor) -> Any:
    """What ``item()`` and ``tolist()`` of a tensor with these elements return; None for another function."""
    if func is Tensor.item and elements.size == 1:
        return elements.flat[0]
    if func is Tensor.tolist and all(type(size) is int for size in tensor.shape):
        return np.broadcast_to(elements, tensor.shape).tolist()
    return None


def computed_elements(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Callable[[Tensor], Elements | None]
) -> list[tuple[Tensor, Elements]]:
    """The results of a function whose elements are known, with these.

    Args:
        func: The function.
        args: Its arguments.
        kwargs: Its keyword arguments.
        result: What it returned.
        known: The elements of a tensor; None if they are not known.
    """
    results = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, (tuple, list)) else []
    if not results or not all(isinstance(one, Tensor) and one.dtype in _DTYPES for one in results):
        return []
    if func in _CREATIONS:
        number = args[_CREATIONS[func]] if len(args) > _CREATIONS[func] else kwargs.get("fill_value")
        found = [_created(number, results[0])]
    elif func in _JOINS:
        found = [_joined(func, args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0), known)]
    elif func in _ARITHMETIC and not kwargs and len(args) == 2:
        sides = [_side(one, known) for one in args]
        found = [None if any(one is None for one in sides) else np.asarray(_ARITHMETIC[func](*sides), object)]
    else:
        own = known(args[0]) if args and isinstance(args[0], Tensor) else None
        found = [] if own is None else _changed(func, args, kwargs, own, results)
    pairs = zip(results, found, strict=False)
    return [(tensor, elements) for tensor, elements in pairs if elements is not None and _fits(elements, tensor)]


def _created(number: Any, result: Tensor) -> Elements | None:
    return np.full((1,) * result.dim(), number, object) if isinstance(number, _SIZES) else None


def _joined(func: Any, tensors: Any, dim: int, known: Callable[[Tensor], Elements | None]) -> Elements | None:
    parts = []
    for tensor in tensors:
        part = known(tensor)
        if part is None or part.shape != tensor.shape:
            return None
        parts.append(part)
    return _JOINS[func](parts, dim) if sum(part.size for part in parts) <= _MOST_ELEMENTS else None


def _side(value: Any, known: Callable[[Tensor], Elements | None]) -> Elements | None:
    if isinstance(value, Tensor):
        return known(value)
    return np.asarray(value, object) if isinstance(value, _SIZES) and not isinstance(value, bool) else None


def _changed(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], own: Elements, results: list[Tensor]
) -> list[Elements | None]:
    """The elements of what a function makes of a tensor with these elements."""
    if func in _UNCHANGED:
        return [own]
    if func in _RESHAPED and results[0].dtype != args[0].dtype:
        return []
    if own.size == 1 and (func in _RESHAPED | _PARTS or func is Tensor.__getitem__):
        return [own.reshape((1,) * one.dim()) for one in results]
    if own.size == 1 and func in _OF_UNIFORM and not any(isinstance(one, Tensor) for one in args[1:]):
        return [own.reshape((1,) * results[0].dim())]  # Not the indices.
    shape = tuple(args[0].shape)
    if not all(type(size) is int for size in shape):
        return []
    own = np.broadcast_to(own, shape)
    if func in _RESHAPED and own.size == results[0].numel():
        return [own.reshape(tuple(results[0].shape))]
    if func in _PARTS and args[1:] in ((), (0,)) and not kwargs:
        return [np.asarray(part, object) for part in own]
    if func is Tensor.__getitem__ and _is_static(args[1]):
        return [np.asarray(own[args[1]], object)]
    if func in _REDUCTIONS and len(args) == 1 and not kwargs and own.size:
        return [np.asarray(_REDUCTIONS[func](own.reshape(-1)), object)]
    return []


def _is_static(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    bounds = [bound for one in parts if isinstance(one, slice) for bound in (one.start, one.stop, one.step)]
    return all(type(one) is int or one is ... or isinstance(one, slice) for one in parts) and all(
        bound is None or type(bound) is int for bound in bounds
    )


def _fits(elements: Elements, tensor: Tensor) -> bool:
    """Whether the elements broadcast to the tensor, which for a dynamic size is true of one element."""
    return elements.ndim == tensor.dim() and all(
        own == 1 or own == size for own, size in zip(elements.shape, tensor.shape, strict=True)
    )
