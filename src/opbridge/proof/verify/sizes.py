"""The sizes of dynamic dimensions: the symbols, their ranges, and the sizes to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

__all__ = ["Sizes"]

# Steps from the example's size. The first size that the model accepts is used. Small steps come first, because they are
# the cheapest; even and odd sizes, multiples and powers of two follow for models that need a divisor.
_UP = (1, 3, 2, 4, 6, 8, 16, 32, 64, 128)
_DOWN = (1, 3, 2, 4, 6, 8, 16, 32, 64, 128)
_MOST_TRIALS = 12
_ASSUMED = 2
"""The smallest size that torch.export assumes for a dimension without a declared range."""


class Sizes:
    """The dynamic dimensions of a program.

    Args:
        constraints: ``program.range_constraints``.
        observed: Every size expression of the inputs with its value in the example.

    Attributes:
        base: The size of every symbol in the example.
        ranges: The smallest and the largest size of every symbol; None for no limit.
    """

    def __init__(self, constraints: Mapping[Any, Any], observed: Sequence[tuple[sympy.Expr, int]]) -> None:
        symbols = sorted({str(symbol) for expression, _ in observed for symbol in expression.free_symbols})
        self._derived = [
            (expression, *self._limits(constraints, str(expression)))
            for expression in dict.fromkeys(expression for expression, _ in observed)
            if not expression.is_Symbol and expression.free_symbols
        ]
        self.ranges = {name: self._limits(constraints, name) for name in symbols}
        self.base = self.solve(observed)

    @staticmethod
    def _limits(constraints: Mapping[Any, Any], name: str) -> tuple[int, int | None]:
        for key, limits in constraints.items():
            if str(key) == name:
                upper = limits.upper
                finite = not ("oo" in str(upper) or int(upper) > 1 << 40)
                return max(0, int(limits.lower)), int(upper) if finite else None
        return 0, None

    def value(self, expression: sympy.Expr, sizes: Mapping[str, int]) -> int:
        """The value of an expression at these sizes."""
        return int(expression.subs({symbol: sizes[str(symbol)] for symbol in expression.free_symbols}))

    def solve(self, observed: Sequence[tuple[sympy.Expr, int]]) -> dict[str, int]:
        """The sizes of the symbols, from the values of expressions."""
        known = {str(expression): int(size) for expression, size in observed if expression.is_Symbol}
        for expression, size in observed:
            unknown = [symbol for symbol in expression.free_symbols if str(symbol) not in known]
            if len(unknown) == 1:
                partly = expression.subs({s: known[str(s)] for s in expression.free_symbols if str(s) in known})
                known[str(unknown[0])] = self._root(partly, unknown[0], int(size))
        return dict(sorted(known.items()))

    @staticmethod
    def _root(expression: sympy.Expr, symbol: Any, size: int) -> int:
        """The smallest number for which ``expression`` is ``size``. Floor divisions have no algebraic solution."""
        for candidate in range(max(2, 4 * size + 64)):
            if int(expression.subs({symbol: candidate})) == size:
                return candidate
        return size

    def allowed(self, sizes: Mapping[str, int], ignore_assumed: bool = False) -> bool:
        """Whether the ranges of the program allow these sizes.

        Args:
            sizes: The size of every symbol.
            ignore_assumed: Whether to allow the sizes 0 and 1 where torch.export alone excludes them.
        """
        limits = [(sizes[name], low, high) for name, (low, high) in self.ranges.items()]
        limits += [(self.value(expression, sizes), low, high) for expression, low, high in self._derived]
        for size, low, high in limits:
            smallest = (0 if low == _ASSUMED else low) if ignore_assumed else max(low, 1)
            if size < smallest or (high is not None and size > high):
                return False
        return True

    def is_promised(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program must be correct at these sizes.

        Shapes may mean something else at the sizes 0 and 1, so these are promised only if the example has them, or if
        the declared range begins at 1.
        """
        return all(size >= min(2, self.base[name]) or size == self.ranges[name][0] == 1 for name, size in sizes.items())

    @property
    def from_one(self) -> list[str]:
        """The symbols whose declared range begins at 1."""
        return [name for name, (low, _) in self.ranges.items() if low == 1 and self.base[name] > 1]

    def edges(self, done: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, dict[str, int]]]:
        """Assignments with one symbol at a size at which kernels often fail: 0, 1, and an odd or an even size.

        Args:
            done: Assignments that were tried.

        Yields:
            The symbol and the assignment. Its sizes are in the declared ranges, or excluded only by an assumption of
            torch.export.
        """
        for name, base in self.base.items():
            tried = {sizes[name] for sizes in (self.base, *done)}
            edges = [0, 1]
            if len({size % 2 for size in tried}) == 1:
                edges += [size for size in (base + 1, base - 1) if self.allowed({**self.base, name: size})][:1]
            for size in edges:
                sizes = {**self.base, name: size}
                if size not in tried and self.allowed(sizes, ignore_assumed=True):
                    yield name, sizes

    def candidates(self, name: str, direction: int, used: Sequence[int] = ()) -> list[int]:
        """Sizes of one symbol, those not used yet first; larger ones first for 1, smaller ones for -1."""
        base = self.base[name]
        low, high = self.ranges[name]
        up = [base + step for step in _UP] + [2 * base, 3 * base, 4 * base]
        down = [base - step for step in _DOWN] + [base // 2, base // 4]
        # Shapes may mean something else at the size 1, so it comes last.
        down = [size for size in down if size >= 2] + ([1] if base > 1 else [])
        ordered = up + down if direction > 0 else down + up
        allowed = [size for size in dict.fromkeys(ordered) if size >= low and (high is None or size <= high)]
        return [size for size in allowed if size not in used] + [size for size in allowed if size in used]

    def others(self, direction: int, done: Sequence[Mapping[str, int]] = ()) -> Iterator[dict[str, int]]:
        """Assignments in which every symbol has another size than in the example, as far as the ranges allow.

        Args:
            direction: 1 for larger sizes first, -1 for smaller sizes first.
            done: Assignments that were tried; their sizes come last.

        Yields:
            About two dozen assignments, because the model may refuse some. The steps differ between symbols, so that
            an engine that confuses two dimensions fails.
        """
        options = {name: self.candidates(name, direction, [sizes[name] for sizes in done]) for name in self.base}
        tried = {tuple(sizes.values()) for sizes in done}
        for trial in range(2 * _MOST_TRIALS):
            sizes = {
                name: choice[(trial + shift) % len(choice)] if choice else self.base[name]
                for shift, (name, choice) in enumerate(options.items())
            }
            # Later trials use the same step for all symbols, for relations such as "one more than".
            if trial >= _MOST_TRIALS:
                sizes = {
                    name: choice[(trial - _MOST_TRIALS) % len(choice)] if choice else self.base[name]
                    for name, choice in options.items()
                }
            if sizes != self.base and tuple(sizes.values()) not in tried and self.allowed(sizes):
                tried.add(tuple(sizes.values()))
                yield sizes
        for name, choice in options.items():
            for size in choice[:2]:
                sizes = {**self.base, name: size}
                if tuple(sizes.values()) not in tried and self.allowed(sizes):
                    tried.add(tuple(sizes.values()))
                    yield sizes
