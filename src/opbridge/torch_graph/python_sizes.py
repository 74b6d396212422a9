"""Replacements of Python's functions of numbers during a capture, which keep dynamic sizes dynamic.

``len(x)`` must return an integer, and ``min(k, n)`` must compare its arguments. Both therefore specialize a dynamic
dimension to the size in the example, or fail for a size that depends on data. They have equivalents that a graph can
contain (``x.shape[0]``, ``torch.sym_min``). Models of many libraries call them, so they are replaced by name, and so
are ``sorted``, ``divmod``, and the functions of ``number_functions.py``.

``float(n)`` and ``int(n)`` must return a number too, but ``float`` and ``int`` are classes that code compares and uses
as element types, so they are replaced only in modules in which a capture has failed because of them. There, a number
that a tensor holds stays dynamic too (``int(lengths.max())``), ``isinstance(n, int)`` is true for a dynamic size, and
functions that were imported by name (``from math import sqrt``) are replaced.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import math
import re
import sys
from collections.abc import (
    Callable,
    Collection,
    Generator,
    ItemsView,
    Iterator,
    KeysView,
    Sequence,
    ValuesView,
)
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from opbridge.torch_graph.number_functions import DYNAMIC, FUNCTIONS
from opbridge.torch_graph.ordering import depends_on_data, in_order
from opbridge.torch_graph.sources import SourceLine
from opbridge.torch_graph.statements import enclosing_function

__all__ = ["converts", "dynamic_builtins", "dynamic_conversions", "einsum_from_left_to_right", "tests_for_numbers"]


@contextlib.contextmanager
def dynamic_builtins() -> Iterator[None]:
    """Make ``len``, ``min``, ``sorted``, ``math.sqrt`` and the like of dynamic sizes return dynamic numbers.

    Calls from torch's own code, and calls without a dynamic size, are not affected. The replacements are made once and
    live on, because Dynamo remembers the ids of functions that it finds in NumPy's modules.
    """
    originals = {"len": len, "min": min, "max": max, "sorted": sorted, "divmod": divmod}
    replaced = {
        "len": _length(len),
        "min": _extreme(min, torch.sym_min),
        "max": _extreme(max, torch.sym_max),
        "sorted": _in_order(sorted),
        "divmod": _quotient(divmod),
    }
    vars(builtins).update(replaced)
    originals_of = {key: getattr(*key) for key in FUNCTIONS}
    for (module, name), symbolic in FUNCTIONS.items():
        setattr(module, name, _function(originals_of[module, name], symbolic))
    try:
        yield
    finally:
        vars(builtins).update(originals)
        for (module, name), original in originals_of.items():
            setattr(module, name, original)


_REPLACED_BY_TORCH = "torch._export.non_strict_utils"
"""The module of torch with its own ``min`` and ``max`` of a capture, which call these."""


_INTERNAL = frozenset(("torch", "sympy", "mpmath"))
"""The packages whose own calls are not replaced: torch computes sizes with SymPy, which never sees a dynamic number."""


def _called_by_torch() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == _REPLACED_BY_TORCH:
        frame = frame.f_back
    name = (frame.f_globals.get("__name__") if frame is not None else None) or ""
    return name.partition(".")[0] in _INTERNAL


@functools.cache
def _length(original: Callable[..., int]) -> Callable[..., Any]:
    @functools.wraps(original)
    def length(value: Any, /) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and isinstance(value.shape[0], torch.SymInt):
            return original(value) if _called_by_torch() else value.shape[0]
        return original(value)

    return length


@functools.cache
def _extreme(original: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def extreme(*values: Any, key: Any = None, **options: Any) -> Any:
        if _called_by_torch():
            return original(*values, key=key, **options)
        if key is not None and len(values) == 1:
            values = (_as_sequence(values[0]),)
        is_sequence = len(values) == 1 and type(values[0]) in _SEQUENCES
        numbers = values[0] if is_sequence else values
        if (is_sequence or len(values) > 1) and numbers:
            if key is None and _are_dynamic(numbers):
                return functools.reduce(symbolic, numbers)
            if key is not None and (ordered := _ordered(numbers, key, symbolic is torch.sym_max)) is not None:
                return ordered[0]
        return original(*values, key=key, **options)

    return extreme


@functools.cache
def _in_order(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def in_order(values: Any, /, *, key: Any = None, reverse: Any = False) -> list[Any]:
        if _called_by_torch():
            return original(values, key=key, reverse=reverse)
        values, ordered = _as_sequence(values), None
        if type(values) in _SEQUENCES:
            ordered = _in_order_of_size(values, reverse) if key is None else _ordered(values, key, reverse)
        return original(values, key=key, reverse=reverse) if ordered is None else ordered

    return in_order


_INTEGERS = (int, torch.SymInt)


def _in_order_of_size(values: Sequence[Any], reverse: bool) -> list[Any] | None:
    """Sizes in their order, by torch.sym_min, which conditions on sizes may contain, as torch.sym_ite may not."""
    if not all(type(value) in _INTEGERS for value in values) or any(map(depends_on_data, values)):
        return _ordered(values, None, reverse)
    if not _are_dynamic(values):
        return None
    ordered = list(values)
    for end in range(len(ordered) - 1, 0, -1):
        for first, second in zip(range(end), range(1, end + 1), strict=True):
            a, b = ordered[first], ordered[second]
            ordered[first], ordered[second] = torch.sym_min(a, b), torch.sym_max(a, b)
    return ordered[::-1] if reverse else ordered


def _ordered(values: Sequence[Any], key: Callable[[Any], Any] | None, reverse: bool) -> list[Any] | None:
    """Values in the order of their keys, equal ones in the order that they have; None if no key is dynamic."""
    keys, ordered = list(values) if key is None else list(map(key, values)), list(values)
    if any(map(depends_on_data, keys)):
        return in_order(ordered, keys, reverse)
    if not _are_dynamic(keys) or not all(type(value) in _NUMBERS for value in ordered):
        return None
    for end in range(len(keys) - 1, 0, -1):
        for first, second in zip(range(end), range(1, end + 1), strict=True):
            a, b = keys[first], keys[second]
            swaps = a < b if reverse else b < a
            for numbers in (keys, ordered):
                numbers[first], numbers[second] = (
                    _chosen(swaps, numbers[second], numbers[first]), _chosen(swaps, numbers[first], numbers[second])
                )  # fmt: skip
    return ordered


def _chosen(truth: Any, a: Any, b: Any) -> Any:
    """``a if truth else b``."""
    if isinstance(truth, bool) or a is b:
        return a if truth else b
    # torch.sym_ite takes no number of Python beside a dynamic one.
    return torch.sym_ite(truth, a, b) if type(a) is type(b) else b + torch.sym_ite(truth, 1, 0) * (a - b)


@functools.cache
def _quotient(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def quotient(a: Any, b: Any, /) -> Any:
        return (a // b, a % b) if _are_dynamic((a, b)) and not _called_by_torch() else original(a, b)

    return quotient


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def _as_sequence(values: Any) -> Any:
    """The items of a tensor, a generator, a dict or the like as a list; any other iterable as it is."""
    is_fixed = isinstance(values, torch.Tensor) and values.dim() and isinstance(values.shape[0], int)
    return list(values) if is_fixed or isinstance(values, _ITERABLES) else values


_ITERABLES = (Generator, map, filter, zip, enumerate, reversed, dict, KeysView, ValuesView, ItemsView)
_SEQUENCES = (list, tuple, range, torch.Size)


def _are_dynamic(values: Sequence[Any]) -> bool:
    """Whether these values are numbers, one of them a dynamic size."""
    return any(type(x) in DYNAMIC for x in values) and all(type(x) in _NUMBERS for x in values)


@functools.cache
def _function(original: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, or of lists of them, that has an equivalent for dynamic ones."""

    @functools.wraps(original)
    def function(*values: Any, **options: Any) -> Any:
        numbers = [number for value in values for number in (value if type(value) in _SEQUENCES else (value,))]
        if not options and _are_dynamic(numbers) and not _called_by_torch():
            return symbolic(*values)
        return original(*values, **options)

    return function


_ORIGINALS = {name: vars(math)[name] for module, name in FUNCTIONS if module is math}


class _Conversion(type):
    """Compares and tests like the class whose conversion is replaced."""

    original: type
    dynamic: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (cls.original, cls.dynamic))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.original)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)


class _Float(float, metaclass=_Conversion):
    original, dynamic = float, torch.SymFloat

    def __new__(cls, *arguments: Any) -> Any:
        number = _held(arguments)
        return float(*arguments) if number is None else torch.sym_float(number)


class _Int(int, metaclass=_Conversion):
    original, dynamic = int, torch.SymInt

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        value = arguments[0] if len(arguments) == 1 else None
        if isinstance(value, torch.Tensor) and value.is_floating_point() and torch.compiler.is_exporting():
            # torch writes no check of an assumption about a floating-point number into the program.
            arguments = (value.to(torch.int64),)
        number = _held(arguments)
        return int(*arguments, **options) if number is None else torch.sym_int(number)


def _held(arguments: tuple[Any, ...]) -> Any:
    """The dynamic number that is converted, or that the converted tensor holds; None for anything else."""
    value = arguments[0] if len(arguments) == 1 else None
    if isinstance(value, torch.Tensor) and torch.compiler.is_exporting():
        value = value.item()
    return value if isinstance(value, DYNAMIC) else None


@contextlib.contextmanager
def dynamic_conversions(files: Collection[str]) -> Iterator[None]:
    """Make ``float`` and ``int`` of dynamic sizes return dynamic numbers in the modules of these files.

    Args:
        files: The files of modules that have been imported, or that run as a script.
    """
    changed: list[tuple[dict[str, Any], str]] = []
    replacements = {"float": _Float, "int": _Int}
    imported: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in list(sys.modules.values()) if files else ():
            namespace = getattr(module, "__dict__", {})
            if _is_one_of(namespace.get("__file__"), files):
                for name in replacements.keys() - namespace.keys():
                    namespace[name] = replacements[name]
                    changed.append((namespace, name))
                found = {name: value for name, value in _ORIGINALS.items() if namespace.get(name) is value}
                imported += [(namespace, name, value) for name, value in found.items()]
                namespace.update({name: _function(value, FUNCTIONS[math, name]) for name, value in found.items()})
        yield
    finally:
        for namespace, name in changed:
            del namespace[name]
        for namespace, name, original in imported:
            namespace[name] = original


def _is_one_of(file: Any, files: Collection[str]) -> bool:
    names = {Path(other).name for other in files}
    return isinstance(file, str) and Path(file).name in names and str(Path(file).resolve()) in files


def converts(line: SourceLine) -> bool:
    """Whether a line calls ``float``, ``int``, or a function of ``math`` that was imported by name."""
    return _CALL.search(line.text) is not None


_CALL = re.compile(rf"(?<![\w.])(float|int|{'|'.join(_ORIGINALS)})\(")


def tests_for_numbers(line: SourceLine) -> bool:
    """Whether the function that a line is in tests with ``isinstance`` whether a value is an ``int`` or a ``float``."""
    function = enclosing_function(line)
    return function is not None and _TEST.search(ast.unparse(function)) is not None


_TEST = re.compile(r"\bisinstance\([^()]*, \(?[^()]*\b(int|float)\b")


@contextlib.contextmanager
def einsum_from_left_to_right() -> Iterator[None]:
    """Make ``torch.einsum`` contract its operands in their order inside the block.

    Where opt_einsum is installed, it chooses an order by the sizes, which makes all of them constant.
    """
    before = torch.backends.opt_einsum.enabled
    torch.backends.opt_einsum.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.opt_einsum.enabled = before
