"""A condition on dynamic sizes that torch.export assumed during a capture."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]
from sympy.printing.precedence import PRECEDENCE  # type: ignore[import-untyped]
from sympy.printing.str import StrPrinter  # type: ignore[import-untyped]

from opbridge.torch_graph.sources import SourceLine, frames_of_stack, innermost, variable_at
from opbridge.torch_graph.statements import numbers_compared

__all__ = [
    "SizeGuard",
    "current_path",
    "dimensions_of",
    "forget_results",
    "guard_at",
    "if_data_allow",
    "range_around",
    "step_around",
    "under",
]

_path: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("path", default=())


def current_path() -> tuple[Any, ...]:
    """The conditions of the branches that are being traced."""
    return _path.get()


@contextlib.contextmanager
def under(condition: Any) -> Iterator[None]:
    """Trace a branch inside the block that is taken under this condition on torch's symbols."""
    token = _path.set((*_path.get(), condition))
    try:
        yield
    finally:
        _path.reset(token)


_depends_on_data: contextvars.ContextVar[bool] = contextvars.ContextVar("depends_on_data", default=False)


@contextlib.contextmanager
def if_data_allow() -> Iterator[None]:
    """Trace what runs inside the block only if the values of tensors allow it."""
    token = _depends_on_data.set(True)
    try:
        yield
    finally:
        _depends_on_data.reset(token)


def dimensions_of(env: Any, symbol: Any) -> tuple[str, ...]:
    """The dimensions that a symbol of a ``ShapeEnv`` stands for, in torch's notation: ``L['x'].size()[0]``."""
    return tuple(source.name for source in env.var_to_sources.get(symbol, ()))


def forget_results(env: Any) -> None:
    """Forget what a ``ShapeEnv`` computed with facts that no longer hold.

    The internals of torch that this needs: ``_version_counter``, ``_inner_evaluate_expr``,
    ``guard_or_defer_runtime_assert``, which states a fact only the first time, and from torch 2.14 on
    ``_replacements_version_counter``, with which dynamic numbers keep their simplified expressions.
    """
    env._version_counter += 1
    if hasattr(env, "_replacements_version_counter"):
        env._replacements_version_counter += 1
    env._inner_evaluate_expr.cache_clear()
    env.guard_or_defer_runtime_assert.cache_clear()


_CONVERTED = str(Path(__file__).parents[1] / "capture" / "control_flow")
"""What runs in the place of Python's operators in converted functions."""

_OPERATORS = {"FloorDiv": "//", "CleanDiv": "//", "IntTrueDiv": "/", "FloatTrueDiv": "/", "Mod": "%", "PythonMod": "%"}
_FUNCTIONS = {"TruncToInt": "int", "ToFloat": "float", "CeilToInt": "math.ceil", "FloorToInt": "math.floor"}


@dataclasses.dataclass(frozen=True)
class SizeGuard:
    """A condition under which a captured program is valid.

    Attributes:
        condition: The condition on torch's symbols, true for the example inputs.
        symbols: The dimensions of each symbol, in torch's notation: ``L['x'].size()[0]``.
        frames: The stack of executing lines, outermost first.
        path: The conditions under which the program evaluates it: those of the branches that it is in.
        depends_on_data: Whether it is evaluated only if the values of tensors allow it.
        numbers: The ints that the Python comparison on its line names, also for other dimensions.
    """

    condition: Any
    symbols: Mapping[Any, tuple[str, ...]]
    frames: tuple[SourceLine, ...]
    path: tuple[Any, ...] = ()
    depends_on_data: bool = False
    numbers: tuple[int, ...] = ()

    def fails(self, sizes: Mapping[str, int]) -> bool:
        """Whether the condition is false at these sizes, by dimension.

        An unknown dimension leaves it undecided, and so do sizes at which a remainder or a quotient is not defined.
        """
        known = ((symbol, source) for symbol, sources in self.symbols.items() for source in sources)
        values = {symbol: sizes[source] for symbol, source in known if source in sizes}
        if not values.keys() >= self.condition.free_symbols.union(*(one.free_symbols for one in self.path)):
            return False
        try:
            return all(_holds(condition, values) for condition in self.path) and not _holds(self.condition, values)
        except (AssertionError, ZeroDivisionError):
            return False

    def failing_sizes(self, base: Mapping[str, int], ranges: Mapping[str, range]) -> Iterator[dict[str, int]]:
        """Sizes of one dimension, or of two, at which the condition is false: near the base, far away, and equal.

        Args:
            base: The sizes of the example by dimension, which the other dimensions have.
            ranges: The sizes of each dimension that may vary.
        """
        places = [(symbol, source) for symbol, sources in self.symbols.items() for source in sources]
        known = {symbol: base[source] for symbol, source in places if source in base}
        varying = {symbol: source for symbol, source in places if source in ranges}
        arguments = _arguments(self.condition)
        if not known.keys() >= set(arguments) or not varying.keys() & set(arguments):
            return
        own = [one for one in arguments if one in varying]
        for chosen in itertools.combinations(own, min(2, len(own))):
            spans = [_around(known[one], ranges[varying[one]], _MOST_TRIED[len(chosen)]) for one in chosen]
            sizes = dict(zip(chosen, np.meshgrid(*spans, indexing="ij"), strict=True))
            for times, wanted in _wanted(self._fails({**known, **sizes}), list(sizes.values())):
                distance = sum(abs(tried - times * known[one]) for one, tried in sizes.items())
                at = np.unravel_index(np.argmin(np.where(wanted, distance, np.iinfo(np.int64).max)), wanted.shape)
                yield {varying[one]: int(tried[at]) for one, tried in sizes.items()}

    def comparisons(self) -> Iterator[SizeGuard]:
        """If the condition fixes a number, those that it is not another one, and is on the same side of that one."""
        if not isinstance(self.condition, sympy.Eq) or not any(side.is_Integer for side in self.condition.args):
            return
        computed, fixed = sorted(self.condition.args, key=lambda side: bool(side.is_Integer))
        for number in self.numbers:
            if number != fixed:
                side = sympy.Lt if fixed < number else sympy.Gt
                for condition in (side(computed, number), side(computed, number + (1 if fixed < number else -1))):
                    yield dataclasses.replace(self, condition=condition)

    def sizes_compared(self, base: int, sizes: range) -> Iterator[int]:
        """Sizes of any dimension that may be on the other side of a comparison like this one.

        These are the numbers on its line, or those next to them, and sizes at which what it compares is one of them:
        ``n // 16 == 14`` for 14, at 224.

        Args:
            base: The size in the example.
            sizes: Its sizes.
        """
        is_single = isinstance(self.condition, (sympy.Eq, sympy.Ne))
        numbers = [number + step for number in self.numbers for step in ([0] if is_single else [-1, 1])]
        yield from (number for number in numbers if number in sizes)
        if len(self.condition.free_symbols) != 1 or not any(side.is_Integer for side in self.condition.args):
            return
        compared, own = sorted(self.condition.args, key=lambda side: bool(side.is_Integer))
        tried = _around(base, sizes, _MOST_TRIED[1])
        for number in dict.fromkeys([int(own), *numbers]):
            differs = dataclasses.replace(self, condition=sympy.Ne(compared, number))
            at = np.flatnonzero(differs._fails(dict.fromkeys(self.condition.free_symbols, tried)))
            yield from tried[at[:1]].tolist()

    def _fails(self, values: Mapping[Any, Any]) -> np.ndarray:
        """Whether the condition is false, for arrays of sizes; nowhere if it can't be computed for these."""
        function = _function(self.condition, of_arrays=True)
        try:
            holds = function(*(values[symbol] for symbol in _arguments(self.condition)))
        except (TypeError, ValueError, ZeroDivisionError, AssertionError, AttributeError):
            holds = True
        shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
        return ~np.broadcast_to(np.asarray(holds, dtype=bool), shape)

    def limits(self, source: str) -> tuple[int | None, int | None]:
        """The smallest and the largest size of one dimension, if the condition is a limit such as ``n <= 5``."""
        symbol = next((symbol for symbol, sources in self.symbols.items() if source in sources), None)
        sides = self.condition.args
        if symbol not in sides or not any(side.is_Integer for side in sides):
            return None, None
        number = next(int(side) for side in sides if side.is_Integer)
        relation = self.condition.rel_op if symbol == sides[0] else self.condition.reversed.rel_op
        strict = 1 if relation in ("<", ">") else 0
        if relation in ("<", "<="):
            return None, number - strict
        return (number + strict, None) if relation in (">", ">=") else (None, None)

    def divisors(self) -> set[int]:
        """The numbers by which the condition divides, as the 64 in ``n % 64 != 0``."""
        calls = (call.args for call in self.condition.atoms(sympy.Function) if len(call.args) == 2)
        return {int(divisor) for _, divisor in calls if divisor.is_Integer}

    def has_remainder(self) -> bool:
        """Whether the condition contains a remainder, as in ``n % 64 != 0``."""
        return any(type(call).__name__ in ("Mod", "PythonMod") for call in self.condition.atoms(sympy.Function))

    def names_special_sizes(self) -> bool:
        """Whether the condition is an equation or has a remainder, so that it holds, or fails, for single sizes."""
        return isinstance(self.condition, (sympy.Eq, sympy.Ne)) or self.has_remainder()

    def is_inequality(self) -> bool:
        """Whether the condition excludes single sizes, as in ``n // 160 != 1`` and ``n // 160 > 1``."""
        relation = self.condition
        return isinstance(relation, sympy.Ne) or (isinstance(relation, (sympy.Gt, sympy.Lt)) and relation.lts == 1)

    def is_asked_by_torch(self) -> bool:
        """Whether an operator of torch asks it, and not a Python condition or conversion of the model."""
        numbers = [place for place, frame in enumerate(self.frames) if frame.function.startswith("Sym")]
        # The functions of the number that was asked last, as `SymBool.__bool__` and `SymNode.guard_bool`.
        while numbers and numbers[-1] - 1 in numbers:
            numbers.pop()
        asking = self.frames[numbers[-1] - 1] if numbers else None
        if asking is not None and asking.file.startswith(_CONVERTED):
            return False
        line = innermost(self.frames, libraries=True)
        return line is not None and asking != line

    def replaces_a_size(self) -> bool:
        """Whether torch writes a size as another, or as a number, from now on: after ``n == m``, ``n == 2 * m``."""
        if not isinstance(self.condition, sympy.Eq) or self.path:
            return False
        is_fixed = any(side.is_number for side in self.condition.args)
        return any(side.is_Symbol for side in self.condition.args) and (is_fixed or len(self.symbols) > 1)

    def fixes_a_number(self) -> bool:
        """Whether a number is what it is in the example, as after ``int(n / 2)``."""
        return isinstance(self.condition, sympy.Eq) and any(side.is_Integer for side in self.condition.args)

    def is_equality_of_dimensions(self) -> bool:
        """Whether the condition is that two dimensions are equal."""
        return isinstance(self.condition, sympy.Eq) and set(self.condition.args) == set(self.symbols)

    def text(self, names: Mapping[str, str]) -> str:
        """The condition as Python source, with these names of the dimensions."""
        known = ((symbol, source) for symbol, sources in self.symbols.items() for source in sources)
        named = {symbol: sympy.Symbol(names[source]) for symbol, source in known if source in names}
        return str(_Python().doprint(self.condition.xreplace(named)))


_MOST_NUMBERS = 4
"""The number of ints on the line of a condition that are tried."""

_MOST_TRIED = {1: 2**15, 2: 2**10}
"""The number of the smallest sizes of a dimension that are tried, for a condition on one and on more."""


def guard_at(condition: Any, symbols: Mapping[Any, tuple[str, ...]]) -> SizeGuard:
    """A condition that the executing line assumes."""
    guard = SizeGuard(condition, symbols, frames_of_stack(), current_path(), _depends_on_data.get())
    line = innermost(guard.frames, libraries=True)
    if line is None or guard.is_asked_by_torch():
        return guard
    numbers = numbers_compared(line, functools.partial(variable_at, line))
    return dataclasses.replace(guard, numbers=numbers[:_MOST_NUMBERS])


def _wanted(fails: np.ndarray, sizes: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """Where to look for sizes, and which multiple of the base they should be near."""
    kinds = (
        [(1, fails), (4, fails), (16, fails)] if len(sizes) == 1 else [(1, fails), (1, fails & (sizes[0] == sizes[1]))]
    )
    yield from ((times, wanted) for times, wanted in kinds if wanted.any())


def _around(base: int, sizes: range, most: int) -> np.ndarray:
    """The smallest of the sizes, and those next to ``base``."""
    at = sizes.index(base) if base in sizes else 0
    return np.union1d(sizes[:most], sizes[max(0, at - most // 8) : at + most // 8])


def _holds(condition: Any, values: Mapping[Any, int]) -> bool:
    return bool(_function(condition)(*(values[symbol] for symbol in _arguments(condition))))


def _arguments(condition: Any) -> list[Any]:
    return sorted(condition.free_symbols, key=str)


@functools.lru_cache(maxsize=1024)
def _function(condition: Any, of_arrays: bool = False) -> Callable[..., Any]:
    """The condition as a function of its symbols: hundreds of sizes are tried."""
    # What has no equivalent in Python is evaluated by sympy.
    names: dict[str, Any] = {type(call).__name__: type(call) for call in condition.atoms(sympy.Function)}
    names |= _OF_ARRAYS if of_arrays else {"math": math, "Min": min, "Max": max}
    function: Callable[..., Any] = sympy.lambdify(
        _arguments(condition), condition, modules=[names], printer=_Arrays if of_arrays else _Python, cse=True
    )
    return function


class _Python(StrPrinter):  # type: ignore[misc]
    """Prints torch's functions of sizes as Python's operators."""

    _and, _or, _not = "and", "or", "not "

    def _print_Relational(self, condition: Any) -> str:
        left, right = (self._print(side) for side in condition.args)
        return f"{left} {condition.rel_op} {right}"

    def _print_And(self, condition: Any) -> str:
        return f" {self._and} ".join(f"({self._print(part)})" for part in condition.args)

    def _print_Or(self, condition: Any) -> str:
        return f" {self._or} ".join(f"({self._print(part)})" for part in condition.args)

    def _print_Not(self, condition: Any) -> str:
        return f"{self._not}({self._print(condition.args[0])})"

    def _print_Function(self, call: Any) -> str:
        name = type(call).__name__
        if name in _OPERATORS and len(call.args) == 2:  # sympy puts parentheses around it where they are needed.
            return f" {_OPERATORS[name]} ".join(
                self.parenthesize(argument, PRECEDENCE["Mul"]) for argument in call.args
            )
        return f"{_FUNCTIONS.get(name, name)}({', '.join(map(self._print, call.args))})"


class _Arrays(_Python):
    """Prints them for arrays of sizes."""

    _and, _or, _not = "&", "|", "logical_not"


# What the printed names mean for arrays.
_OF_ARRAYS: dict[str, Any] = {
    "int": np.trunc,
    "float": lambda sizes: np.asarray(sizes, np.float64),
    "math": types.SimpleNamespace(ceil=np.ceil, floor=np.floor),
    "logical_not": np.logical_not,
    "Min": lambda *sizes: functools.reduce(np.minimum, sizes),
    "Max": lambda *sizes: functools.reduce(np.maximum, sizes),
    "OpaqueUnaryFn_log2": np.log2,
    "OpaqueUnaryFn_sqrt": np.sqrt,
}


_FARTHEST = 128
_TIMES = (2, 3, 4, 8, 16)
_LARGEST_STEP = 64


def range_around(size: int, holds: Callable[[int], bool]) -> tuple[int | None, int | None]:
    """The first and the last of the sizes around ``size`` at which a condition holds; None for no limit.

    Args:
        size: A size at which it holds.
        holds: The condition. It is evaluated at sizes near ``size``, and at multiples of it.

    Returns:
        The limits; (``size``, ``size``) if the condition is known to hold there only, or is no range.
    """
    low = next((n + 1 for n in range(size - 1, max(1, size - _FARTHEST), -1) if not holds(n)), None)
    high = next((n - 1 for n in range(size + 1, size + _FARTHEST) if not holds(n)), None)
    ends_later = high is None and not all(holds(times * size) for times in _TIMES)
    ends_earlier = low is None and not all(holds(n) for n in range(2, size, max(1, size // _FARTHEST)))
    return (size, size) if ends_later or ends_earlier else (low, high)


def step_around(size: int, holds: Callable[[int], bool]) -> int | None:
    """The number whose multiples are the sizes at which a condition holds, near ``size``; None if there is none."""
    step = next((step for step in range(1, _LARGEST_STEP + 1) if holds(size + step)), None)
    if step is None or step < 2 or size % step:
        return None
    near = range(max(2, size - 2 * step), size + 2 * _LARGEST_STEP)
    return step if all(holds(n) == (n % step == 0) for n in near) else None
