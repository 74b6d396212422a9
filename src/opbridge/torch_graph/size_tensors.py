"""Tensors that hold one size, during a capture: where a number is read from one, it is that size.

``torch.div(x.size(1), 4, rounding_mode="trunc")`` and ``torch.tensor(x.size(1))`` are tensors. If code uses one as a
size, torch.export makes a new number of it of which nothing is known, and shapes with it need conditions that can't be
decided. Here the number is the expression of sizes that the tensor was computed from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["SizeTensors"]


class SizeTensors(TorchFunctionMode):
    """Follows the integers that tensors of rank 0 hold, as far as they are computed from sizes."""

    def __init__(self) -> None:
        super().__init__()
        self._known: Any = WeakIdKeyDictionary()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_dynamo_compiling():  # the functions of torch.while_loop
            return func(*args, **(kwargs or {}))
        options = dict(kwargs or {})
        if func is Tensor.item and (size := self._size(args[0])) is not None:
            return size
        if self._known and getattr(func, "__name__", "") in _TAKE_SIZES:
            args = tuple(map(self._as_sizes, args))
        result = func(*args, **(kwargs or {}))
        changed = args[0] if func is Tensor.__setitem__ else result
        if isinstance(changed, Tensor):
            size = self._computed(func, args, options)
            self._known.pop(changed, None)
            if size is not None and changed.dim() == 0 and changed.dtype in (torch.int64, torch.int32):
                self._known[changed] = size
        return result

    def _size(self, value: Any) -> Any:
        """The number that a value holds: a size, an integer, or one of them in a tensor; None for anything else."""
        if isinstance(value, Tensor):
            return self._known.get(value)
        return value if type(value) in (int, torch.SymInt) else None

    def _as_sizes(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(self._as_sizes, value))
        return self._known.get(value, value) if isinstance(value, Tensor) else value

    def _computed(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        sizes = [self._size(value) for value in (args[:1] if func in _UNCHANGED else args)]
        if all(type(size) is int for size in sizes) or any(size is None for size in sizes):
            return None
        if func in _UNCHANGED:
            return sizes[0]
        if func in (torch.div, Tensor.div):
            function = _DIVISIONS.get(options.pop("rounding_mode", None))
        else:
            function = _FUNCTIONS.get(func)
        return None if function is None or options else function(*sizes)


def _truncated(a: Any, b: Any) -> Any:
    return a // b if statically_known_true(a >= 0) and statically_known_true(b > 0) else None


_DIVISIONS: dict[Any, Callable[..., Any]] = {"floor": operator.floordiv, "trunc": _truncated}

_UNCHANGED = frozenset(
    (
        *(torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.clone, Tensor.clone),
        *(Tensor.int, Tensor.long, Tensor.to, Tensor.cpu, Tensor.detach_),
    )
)
"""Functions after which a tensor, if it is one of integers, holds the same number."""

_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), operator.add),
    **dict.fromkeys((torch.sub, Tensor.sub, Tensor.__sub__), operator.sub),
    Tensor.__rsub__: lambda a, b: b - a,
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__), operator.mul),
    **dict.fromkeys((torch.floor_divide, Tensor.floor_divide, Tensor.__floordiv__), operator.floordiv),
    Tensor.__rfloordiv__: lambda a, b: b // a,
    **dict.fromkeys((torch.remainder, Tensor.remainder, Tensor.__mod__), operator.mod),
    Tensor.__rmod__: lambda a, b: b % a,
}

_TAKE_SIZES = frozenset(
    (
        *("view", "reshape", "expand", "repeat", "tile", "unflatten", "as_strided", "unfold", "narrow", "pad"),
        *("arange", "zeros", "ones", "empty", "full", "rand", "randn", "eye", "split", "chunk", "roll"),
        *("new_zeros", "new_ones", "new_empty", "new_full", "interpolate"),
    )
)
"""Functions whose arguments are sizes. A tensor of rank 0 with a known size is no operand of these."""
