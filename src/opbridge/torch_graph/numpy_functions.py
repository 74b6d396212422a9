"""NumPy's functions of dynamic sizes and of tensors, as parts of a captured program.

``np.fmod(n, 2)`` and ``np.arange(n)`` need integers, so that NumPy makes a dynamic size ``n`` constant or fails. Inside
:func:`dynamic_numpy`, a function of numbers computes with the size, and a function that makes or takes an array of a
dynamic size, or of a tensor, is that of ``torch._numpy``: NumPy's functions, implemented with torch operators, with
NumPy's dtypes. Dynamo captures NumPy in the same way; there is no public access to them without Dynamo.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.short_quotients import short_quotients
from opbridge.torch_graph.sources import SourceLine

__all__ = ["dynamic_numpy", "needs_numpy", "without_array"]

_FOLDER = str(Path(np.__file__).parent)
_DYNAMIC = (torch.SymInt, torch.SymFloat)
_NUMBERS = (int, float, *_DYNAMIC)
_METHODS = ("accumulate", "at", "identity", "nargs", "nin", "nout", "outer", "reduce", "reduceat")
"""What a ufunc has besides a function."""


def needs_numpy(error: BaseException | None, lines: Iterable[SourceLine]) -> bool:
    """Whether a capture failed in a function of NumPy, or with an array of sizes, which NumPy takes for objects."""
    calls = (re.search(r"\b((np|numpy)\.[\w.]+|from_numpy)\(", line.text) for line in lines)
    return (
        any(calls)
        or any(line.file.startswith(_FOLDER) for line in lines)
        or re.search(r"numpy\.object_|\.numpy\(\)", str(error)) is not None
    )


@contextlib.contextmanager
def dynamic_numpy(active: bool) -> Iterator[None]:
    """Make NumPy's functions of dynamic sizes return dynamic numbers and arrays inside the block, if active.

    Calls without a dynamic size, and without an array of a dynamic size, are not affected. Indices that are computed
    with NumPy lead to long sizes, which torch writes in a short form inside the block.
    """
    if not active:
        yield
        return
    dtypes = importlib.import_module("torch._numpy._dtypes")
    with contextlib.ExitStack() as stack:
        stack.enter_context(short_quotients())
        for name in _replaced():
            module, _, last = name.rpartition(".")
            owner = getattr(np, module) if module else np
            stack.enter_context(_replacing(owner, last, functools.partial(_function, name)))
        stack.enter_context(_replacing(dtypes, "dtype", _dtype))
        # An array of NumPy leaves `array + dynamic_array` to the other operand.
        stack.enter_context(_replacing(_array(), "__array_ufunc__", lambda own: None))
        # torch calls no mode for from_numpy, and asks an index for its length before it calls one.
        stack.enter_context(_replacing(torch, "from_numpy", _from_numpy))
        stack.enter_context(_replacing(_array(), "__len__", _static_length))
        stack.enter_context(_replacing(_array(), "astype", _astype))
        stack.enter_context(_Arrays())
        yield


@contextlib.contextmanager
def _replacing(owner: Any, name: str, made: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute inside the block by what is made of it."""
    is_own = name in vars(owner)
    before = getattr(owner, name, None)
    setattr(owner, name, made(before))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def _torch_numpy() -> Any:
    return importlib.import_module("torch._numpy")


def _dtype_type() -> Any:
    return importlib.import_module("torch._numpy._dtypes").DType


def _array() -> Any:
    return _torch_numpy().ndarray


@functools.cache
def _replaced() -> tuple[str, ...]:
    """The names of the functions that NumPy and torch have, and of those that have an equivalent for numbers."""
    of_arrays = _in_both(np, _torch_numpy())
    of_matrices = (f"linalg.{name}" for name in _in_both(np.linalg, _torch_numpy().linalg))
    return tuple(sorted({*of_arrays, *of_matrices, *_OF_NUMBERS, *_ALIASES}))


def _in_both(module: Any, other: Any) -> Iterator[str]:
    for name in vars(module).keys() & vars(other).keys():
        value = getattr(module, name)
        if not name.startswith("_") and callable(value) and not isinstance(value, type):
            yield name


@functools.cache
def _function(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    of_numbers = _OF_NUMBERS.get(name)
    try:
        of_arrays: Any = operator.attrgetter(_ALIASES.get(name, name))(_torch_numpy())
    except AttributeError:
        of_arrays = own

    @functools.wraps(own)
    def function(*args: Any, **kwargs: Any) -> Any:
        if name in _OF_SIZES and len(args) == 1 and not kwargs and _are_sizes(args[0]):
            return np.fromiter(args[0], object, len(args[0])).view(_Sizes)
        args, kwargs = pytree.tree_map_only(_Sizes, _sizes_as_tuple, (args, kwargs))
        args, kwargs = pytree.tree_map_only(torch.Tensor, _as_own_array, (args, kwargs))
        leaves = pytree.tree_leaves((args, kwargs))
        if any(leaf is object for leaf in leaves) or not any(
            isinstance(leaf, (*_DYNAMIC, _array(), _dtype_type())) for leaf in leaves
        ):
            return own(*args, **kwargs)
        if of_numbers is not None and not kwargs and all(isinstance(leaf, _NUMBERS) for leaf in leaves):
            with contextlib.suppress(TypeError):  # A sequence of numbers, or another number of arguments.
                return of_numbers(*args)
        return of_arrays(*args, **kwargs)

    # NumPy's own functions, such as np.prod, call np.multiply.reduce.
    vars(function).update({method: getattr(own, method) for method in _METHODS if hasattr(own, method)})
    return function


@functools.cache
def _static_length(own: Callable[..., int]) -> Callable[..., int]:
    """``__len__`` of arrays, which fails for a dynamic length instead of making it constant."""

    @functools.wraps(own)
    def length(array: Any) -> int:
        if isinstance(array.tensor.shape[0], torch.SymInt):
            raise TypeError("The length of this array is dynamic.")
        return own(array)

    return length


@functools.cache
def _astype(own: Callable[..., Any]) -> Callable[..., Any]:
    """``astype`` of arrays, which always copies: torch._numpy refuses other options."""

    @functools.wraps(own)
    def astype(array: Any, dtype: Any, *arguments: Any, **options: Any) -> Any:
        return own(array, dtype)

    return astype


@functools.cache
def _from_numpy(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def from_numpy(array: Any) -> Any:
        array = _as_array(array) if isinstance(array, _Sizes) else array
        return array.tensor if isinstance(array, _array()) else own(array)

    return from_numpy


class _Sizes(np.ndarray):
    """An array of dynamic sizes, as in ``np.array(x.shape[2:])``: NumPy computes with them one by one.

    What is not computed with integers is an array of torch._numpy.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        own = _OF_NUMBERS.get(ufunc.__name__)
        numbers = all(isinstance(one, (*_NUMBERS, np.integer, np.ndarray)) for one in inputs)
        if own is not None and method == "__call__" and numbers and not options:
            plain = [one.view(np.ndarray) if isinstance(one, _Sizes) else one for one in inputs]
            result: Any = np.frompyfunc(own, len(inputs), 1)(*plain)
            return result.view(_Sizes) if isinstance(result, np.ndarray) else result
        if own is not None and method == "reduce" and self.ndim == 1:
            return functools.reduce(own, self)
        function = getattr(_torch_numpy(), ufunc.__name__)
        return function(*(_as_array(one) if isinstance(one, _Sizes) else one for one in inputs), **options)

    def astype(self, dtype: Any, *arguments: Any, **options: Any) -> Any:
        """Sizes stay sizes as integers of any type."""
        return self.copy() if np.issubdtype(np.dtype(dtype), np.integer) else _as_array(self).astype(dtype)


def _are_sizes(values: Any) -> bool:
    """Whether a sequence consists of integers, of which one is dynamic."""
    is_flat = isinstance(values, (list, tuple)) and all(type(value) in (int, torch.SymInt) for value in values)
    return is_flat and any(isinstance(value, torch.SymInt) for value in values)


def _sizes_as_tuple(sizes: Any) -> Any:
    """The sizes as a tuple, as torch._numpy and the functions of numbers take them."""
    return tuple(sizes.tolist()) if sizes.ndim == 1 else _as_array(sizes)


def _as_array(sizes: Any) -> Any:
    numbers = list(sizes.flat)
    is_float = any(isinstance(number, (float, torch.SymFloat)) for number in numbers)
    dtype = torch.float64 if is_float else torch.int64
    return _array()(torch.stack([torch.full((), number, dtype=dtype) for number in numbers]).reshape(sizes.shape))


def without_array(value: Any) -> Any:
    """The tensor of an array of the capture; any other value as it is."""
    return value.tensor if isinstance(value, _array()) else value


def _as_own_array(tensor: torch.Tensor) -> Any:
    """A tensor of the capture as an array in the same memory; another tensor as it is."""
    return _array()(tensor.detach()) if is_fake(tensor) else tensor


def _as_tensors(values: Any) -> Any:
    return pytree.tree_map(without_array, pytree.tree_map_only(_Sizes, _as_array, values))


@functools.cache
def _dtype(own: Callable[..., Any]) -> Callable[..., Any]:
    """torch._numpy's function of the name of a dtype, also for NumPy's own types."""

    @functools.wraps(own)
    def dtype(given: Any) -> Any:
        is_of_numpy = isinstance(given, np.dtype) or (isinstance(given, type) and issubclass(given, np.generic))
        return own(np.dtype(given).name if is_of_numpy else given)

    return dtype


class _Arrays(TorchFunctionMode):
    """Passes arrays of a dynamic size to torch's functions as tensors."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = _as_tensors((args, kwargs or {}))
        if func is torch.Tensor.numpy and is_fake(args[0]):
            return _as_own_array(args[0])
        return func(*args, **kwargs)


def _remainder_of_truncation(a: Any, b: Any) -> Any:
    """The remainder with the sign of ``a``."""
    if isinstance(a, (float, torch.SymFloat)) or isinstance(b, (float, torch.SymFloat)):
        return a - b * torch.sym_float(math.trunc(a / b))
    b = torch.sym_max(b, -b)
    return torch.sym_max(a, 0) % b - torch.sym_max(-a, 0) % b


def _number(value: Any) -> Any:
    """A dynamic number, of which these functions have equivalents; a sequence of numbers is none."""
    if not isinstance(value, _NUMBERS):
        raise TypeError(type(value))
    return value


def _rounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """NumPy leaves an integer an integer, and rounds any other number to a floating-point number."""
    return lambda a: a if isinstance(_number(a), (int, torch.SymInt)) else torch.sym_float(function(a))


def _folded(function: Callable[[Any, Any], Any], *first: Any) -> Callable[[Any], Any]:
    """A function of a sequence."""
    return lambda numbers: functools.reduce(function, _sequence(numbers), *first)


def _sequence(values: Any) -> Any:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, _NUMBERS) for value in values):
        raise TypeError(type(values))
    return values


_OF_SIZES = ("array", "asarray", "asanyarray")

_ALIASES: Mapping[str, str] = {"asanyarray": "asarray", "concat": "concatenate", "permute_dims": "transpose"}
"""Functions of NumPy that torch._numpy has under another name."""

_OF_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "absolute": lambda a: torch.sym_max(_number(a), -a),
    "add": operator.add,
    "amax": _folded(torch.sym_max),
    "amin": _folded(torch.sym_min),
    "divide": operator.truediv,
    "fix": _rounded(math.trunc),
    "floor_divide": operator.floordiv,
    "fmod": _remainder_of_truncation,
    "max": _folded(torch.sym_max),
    "maximum": torch.sym_max,
    "min": _folded(torch.sym_min),
    "minimum": torch.sym_min,
    "mod": operator.mod,
    "multiply": operator.mul,
    "negative": operator.neg,
    "prod": _folded(operator.mul, 1),
    "remainder": operator.mod,
    "rint": lambda a: torch.sym_float(round(_number(a))),
    "round": _rounded(round),
    "subtract": operator.sub,
    "sum": _folded(operator.add, 0),
    "true_divide": operator.truediv,
    "trunc": _rounded(math.trunc),
}
