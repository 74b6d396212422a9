"""``torch_graph/short_sizes.py``: sizes in a shorter form that has the same value."""

import hypothesis
import hypothesis.strategies as st
import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min

from opbridge.torch_graph.short_sizes import shortened

N, M = sympy.symbols("n m", integer=True, positive=True)

IS_LONG = Max(0, Min(1, N - 8))
"""1 if ``n > 8``, otherwise 0."""

PADDED = Max(N, 9)
"""``9 if n <= 8 else n``"""


@pytest.mark.parametrize(
    ("size", "short"),
    [
        (PADDED + (1 - IS_LONG) * (N - 9), N),
        (PADDED - (1 - IS_LONG) * Min(4, 9 - N) + (1 - IS_LONG) * (N - 9 + Min(4, 9 - N)) + 6, N + 6),
        (FloorDiv(PADDED + (1 - IS_LONG) * (N - 9), 4), FloorDiv(N, 4)),
        (PADDED + M - (1 - IS_LONG) * (9 - N), N + M),
        (Min(N, 8) + IS_LONG * (N - 8), N),
        (FloorDiv(M, 2 * IS_LONG), FloorDiv(M, 2)),  # An error for a short n
    ],
)
def test_equal_on_both_paths(size, short):
    assert sympy.expand(size - short) != 0
    assert shortened(size) == short


@pytest.mark.parametrize("size", [PADDED, N + IS_LONG, PADDED + IS_LONG * (N - 9), Max(0, Min(1, N, M)), N])
def test_different_paths_remain(size):
    assert shortened(size) == size


SIZES = st.recursive(
    st.sampled_from(
        [N, M, IS_LONG, 1 - IS_LONG, Max(0, Min(1, M - N)), PADDED, Min(N, 8), Max(M, N), sympy.Integer(3)]
    ),
    lambda inner: st.builds(
        lambda kind, a, b: kind(a, b),
        st.sampled_from([sympy.Add, sympy.Mul, Max, Min, lambda a, b: a - b, lambda a, _: FloorDiv(a, 2)]),
        inner,
        inner,
    ),
    max_leaves=8,
)


@hypothesis.given(SIZES)
@hypothesis.settings(max_examples=150, deadline=None)
def test_has_the_same_value_at_all_sizes(size):
    short = shortened(size)
    for n in (1, 2, 7, 8, 9, 10, 20):
        for m in (1, 8, 9, 30):
            assert size.xreplace({N: sympy.Integer(n), M: sympy.Integer(m)}) == short.xreplace(
                {N: sympy.Integer(n), M: sympy.Integer(m)}
            )
