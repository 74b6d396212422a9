"""Replacements of Python's functions of numbers during a capture, which keep dynamic sizes dynamic.

``len(x)`` must return an integer, and ``min(k, n)`` must compare its arguments. Both therefore specialize a dynamic
dimension to the size in the example, or fail for a size that depends on data. They have equivalents that a graph can
contain (``x.shape[0]``, ``torch.sym_min``). Models of many libraries call them, so they are replaced by name, and so
are ``sorted``, ``divmod``, functions of ``math`` such as ``sqrt`` and ``log``, and NumPy's ``sqrt``, ``ceil`` and
``floor``.

``float(n)`` and ``int(n)`` must return a number too, but ``float`` and ``int`` are classes that code compares and uses
as element types, so they are replaced only in modules in which a capture has failed because of them. There, a number
that a tensor holds stays dynamic too (``int(lengths.max())``), ``isinstance(n, int)`` is true for a dynamic size, and
functions that were imported by name (``from math import sqrt``) are replaced.

The internal of torch that this needs: ``var_to_range`` of a ``ShapeEnv``.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

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
    originals_of = {key: getattr(*key) for key in _FUNCTIONS}
    for (module, name), symbolic in _FUNCTIONS.items():
        setattr(module, name, _function(originals_of[module, name], symbolic))
    try:
        yield
    finally:
        vars(builtins).update(originals)
        for (module, name), original in originals_of.items():
            setattr(module, name, original)


_REPLACED_BY_TORCH = "torch._export.non_strict_utils"
"""The module of torch with its own ``min`` and ``max`` of a capture, which call these."""


def _called_by_torch() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == _REPLACED_BY_TORCH:
        frame = frame.f_back
    name = (frame.f_globals.get("__name__") if frame is not None else None) or ""
    return name == "torch" or name.startswith("torch.")


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
        is_sequence = len(values) == 1 and type(values[0]) in _SEQUENCES
        numbers = values[0] if is_sequence else values
        if (is_sequence or len(values) > 1) and numbers and not _called_by_torch():
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
        ordered = None
        if type(values) in _SEQUENCES and not _called_by_torch():
            ordered = _ordered(values, key or (lambda number: number), reverse)
        return original(values, key=key, reverse=reverse) if ordered is None else ordered

    return in_order


def _ordered(values: Sequence[Any], key: Callable[[Any], Any], reverse: bool) -> list[Any] | None:
    """Numbers in the order of their keys, equal ones in the order that they have; None if no key is dynamic."""
    keys, ordered = list(map(key, values)), list(values)
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


_DYNAMIC = (torch.SymInt, torch.SymFloat)
_SEQUENCES = (list, tuple, range, torch.Size)


def _are_dynamic(values: Sequence[Any]) -> bool:
    """Whether these values are numbers, one of them a dynamic size."""
    return any(type(x) in _DYNAMIC for x in values) and all(type(x) in _NUMBERS for x in values)


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


def _square_root(value: Any) -> Any:
    return torch.sym_float(value) ** 0.5


def _wide(value: Any) -> Tensor:
    return torch.scalar_tensor(value, dtype=torch.float64)


def _whole(value: Any) -> Tensor:
    return torch.scalar_tensor(value, dtype=torch.int64)


def _logarithm(value: Any, base: Any) -> Any:
    """The logarithm, which is exact for powers of the base: the quotient of two logarithms is rounded."""
    number, base = _wide(value), _wide(base)
    logarithm = number.log() / base.log()
    whole = logarithm.round()
    result = torch.where(base**whole == number, whole, logarithm).item()
    if isinstance(result, torch.SymFloat) and statically_known_true(value >= 1):
        # It may be an exponent: 2 ** ceil(log2(n)). torch keeps no range of torch._check(result >= 0).
        ranges = result.node.shape_env.var_to_range
        ranges[result.node.expr] = type(ranges[result.node.expr])(sympy.Float(0), sympy.oo)
    return result


def _bit_length(value: Any) -> Any:
    if statically_known_true(value >= 1):
        return math.floor(_logarithm(value, 2)) + 1
    number = _whole(value).abs()
    length = ((number.clamp(min=1).double().log2().floor() + 1) * (number > 0)).long().item()
    torch._check(length >= 0)
    return length


def _hypotenuse(*values: Any) -> Any:
    return torch.stack(list(map(_wide, values))).square().sum().sqrt().item()


def _of_tensors(function: Callable[..., Tensor]) -> Callable[..., Any]:
    return lambda *values: function(*map(_wide, values)).item()


_ELEMENTARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "erf", "exp", "exp2"),
    *("expm1", "fmod", "log1p", "pow", "sin", "sinh", "tan", "tanh"),
)
"""Functions of ``math`` that torch has under the same name."""

_FUNCTIONS: Mapping[tuple[ModuleType | type, str], Callable[..., Any]] = {
    (torch.SymInt, "bit_length"): _bit_length,
    (math, "sqrt"): _square_root,
    (math, "isqrt"): lambda value: math.floor(_square_root(value)),
    (math, "log"): lambda value, *base: _logarithm(value, *base) if base else _wide(value).log().item(),
    (math, "log2"): lambda value: _logarithm(value, 2),
    (math, "log10"): lambda value: _logarithm(value, 10),
    (math, "gcd"): lambda *values: torch.gcd(*map(_whole, values)).item(),
    (math, "hypot"): _hypotenuse,
    (math, "dist"): lambda p, q: _hypotenuse(*(a - b for a, b in zip(p, q, strict=True))),
    (math, "fsum"): lambda values: sum(values, 0.0),
    (math, "fabs"): lambda value: torch.sym_float(abs(value)),
    (math, "remainder"): _of_tensors(lambda a, b: a - (a / b).round() * b),
    **{(math, name): _of_tensors(getattr(torch, name)) for name in _ELEMENTARY},
    (np, "sqrt"): _square_root,
    (np, "ceil"): lambda value: torch.sym_float(math.ceil(value)),
    (np, "floor"): lambda value: torch.sym_float(math.floor(value)),
}


_ORIGINALS = {name: vars(math)[name] for module, name in _FUNCTIONS if module is math}


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
    return value if isinstance(value, _DYNAMIC) else None


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
                namespace.update({name: _function(value, _FUNCTIONS[math, name]) for name, value in found.items()})
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
