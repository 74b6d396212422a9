"""The sizes of dynamic dimensions: which symbols there are, what they may be, which further ones to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]

__all__ = ["Sizes"]

# Steps from the example's size. The first that the model takes is tried, so small ones come first (they cost least) and
# even and odd ones, multiples and powers of two follow for models that need a divisor.
_UP = (1, 3, 2, 4, 6, 8, 16, 32, 64, 128)
_DOWN = (1, 3, 2, 4, 6, 8, 16, 32, 64, 128)
_MOST_TRIALS = 12
_ASSUMED = 2
"""The smallest size that torch.export assumes for a dimension without a declared range."""


class Sizes:
    """The dynamic dimensions of a program.

    Args:
        constraints: ``program.range_constraints``.
        observed: Every size expression of the inputs with its size in the example.

    Attributes:
        base: The example's size of every symbol.
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
        """An expression's value at these sizes."""
        return int(expression.subs({symbol: sizes[str(symbol)] for symbol in expression.free_symbols}))

    def solve(self, observed: Sequence[tuple[sympy.Expr, int]]) -> dict[str, int]:
        """The symbols' sizes, from the sizes that expressions of them have."""
        known = {str(expression): int(size) for expression, size in observed if expression.is_Symbol}
        for expression, size in observed:
            unknown = [symbol for symbol in expression.free_symbols if str(symbol) not in known]
            if len(unknown) == 1:
                partly = expression.subs({s: known[str(s)] for s in expression.free_symbols if str(s) in known})
                known[str(unknown[0])] = self._root(partly, unknown[0], int(size))
        return dict(sorted(known.items()))

    @staticmethod
    def _root(expression: sympy.Expr, symbol: Any, size: int) -> int:
        """The first number at which ``expression`` is ``size``. Floor divisions have no algebraic solution."""
        for candidate in range(max(2, 4 * size + 64)):
            if int(expression.subs({symbol: candidate})) == size:
                return candidate
        return size

    def _allowed(self, sizes: Mapping[str, int], edges: bool = False) -> bool:
        limits = [(sizes[name], low, high) for name, (low, high) in self.ranges.items()]
        limits += [(self.value(expression, sizes), low, high) for expression, low, high in self._derived]
        for size, low, high in limits:
            smallest = (0 if low == _ASSUMED else low) if edges else max(low, 1)
            if size < smallest or (high is not None and size > high):
                return False
        return True

    def is_promised(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program's ranges hold these sizes. Where none was declared, torch.export takes for granted 2."""
        return all(low <= sizes[name] for name, (low, _) in self.ranges.items())

    def edges(self, done: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, dict[str, int]]]:
        """Assignments with one symbol at a size at which kernels often fail: 0, 1, and an odd or an even size.

        Args:
            done: Assignments that were tried.

        Yields:
            The symbol and the assignment, of sizes in the ranges or that torch.export alone excluded.
        """
        for name, base in self.base.items():
            tried = {sizes[name] for sizes in (self.base, *done)}
            wanted = [0, 1]
            if len({size % 2 for size in tried}) == 1:
                wanted += [size for size in (base + 1, base - 1) if self._allowed({**self.base, name: size})][:1]
            for size in wanted:
                sizes = {**self.base, name: size}
                if size not in tried and self._allowed(sizes, edges=True):
                    yield name, sizes

    def _candidates(self, name: str, direction: int, used: Sequence[int]) -> list[int]:
        base = self.base[name]
        low, high = self.ranges[name]
        up = [base + step for step in _UP] + [2 * base, 3 * base, 4 * base]
        down = [base - step for step in _DOWN] + [base // 2, base // 4]
        # Size 1 comes last: torch.export may have taken for granted that a dimension is no broadcast one.
        down = [size for size in down if size >= 2] + ([1] if base > 1 else [])
        ordered = up + down if direction > 0 else down + up
        allowed = [size for size in dict.fromkeys(ordered) if size >= low and (high is None or size <= high)]
        return [size for size in allowed if size not in used] + [size for size in allowed if size in used]

    def others(self, direction: int, done: Sequence[Mapping[str, int]] = ()) -> Iterator[dict[str, int]]:
        """Assignments with every symbol at another size than the example's, as far as the ranges let it.

        Args:
            direction: 1 for larger sizes first, -1 for smaller first.
            done: Assignments that were tried; their sizes come last.

        Yields:
            At most a dozen: the model may refuse some. Symbols go different distances, so that two dimensions that are
            taken for each other show.
        """
        options = {name: self._candidates(name, direction, [sizes[name] for sizes in done]) for name in self.base}
        tried = {tuple(sizes.values()) for sizes in done}
        for trial in range(2 * _MOST_TRIALS):
            sizes = {
                name: choice[(trial + shift) % len(choice)] if choice else self.base[name]
                for shift, (name, choice) in enumerate(options.items())
            }
            # The later trials move all symbols by the same distance: relations such as "one more than" need it.
            if trial >= _MOST_TRIALS:
                sizes = {
                    name: choice[(trial - _MOST_TRIALS) % len(choice)] if choice else self.base[name]
                    for name, choice in options.items()
                }
            if sizes != self.base and tuple(sizes.values()) not in tried and self._allowed(sizes):
                tried.add(tuple(sizes.values()))
                yield sizes
        for name, choice in options.items():
            for size in choice[:2]:
                sizes = {**self.base, name: size}
                if tuple(sizes.values()) not in tried and self._allowed(sizes):
                    tried.add(tuple(sizes.values()))
                    yield sizes
