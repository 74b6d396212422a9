"""Quotients of sizes are written in a short form, with the same values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv

from opbridge.torch_graph.short_quotients import short_quotients

N, M = sympy.symbols("n m", integer=True)


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    before = FloorDiv(N + 3, 2)
    with short_quotients():
        assert FloorDiv(N + 3, 2) != before
        yield
    assert FloorDiv(N + 3, 2) == before


QUOTIENTS: dict[str, Callable[[Any, Any], tuple[Any, int]]] = {
    "negative": lambda n, m: (-n, 2),
    "from a number": lambda n, m: (3 - n, 2),
    "odd": lambda n, m: (n + 3, 2),
    "by three": lambda n, m: (4 * n - 5 * m + 7, 3),
    "product": lambda n, m: (n * m + 1, 2),
    "multiple": lambda n, m: (6 * n - 4, 2),
    "common factor": lambda n, m: (4 * n - 6 * m + 14, 8),
    "common factor of a half": lambda n, m: (5 * n * 3 + 5, 10),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_the_value_is_that_of_python(name: str) -> None:
    short = FloorDiv(*map(sympy.sympify, QUOTIENTS[name](N, M)))
    for n, m in itertools.product(range(-7, 8), range(-3, 4)):
        numerator, divisor = QUOTIENTS[name](n, m)
        assert short.subs({N: n, M: m}) == numerator // divisor


def test_a_symmetric_padding_has_a_short_length() -> None:
    def padded(n: Any) -> Any:
        missing = 2 * FloorDiv(n + 3, 2) + 2 - n
        return n + FloorDiv(missing, 2) + FloorDiv(missing + 1, 2)

    assert padded(N) == 2 * N - 2 * FloorDiv(N, 2) + 4
    assert FloorDiv(padded(N) - 4, 2) + 1 == N - FloorDiv(N, 2) + 1
