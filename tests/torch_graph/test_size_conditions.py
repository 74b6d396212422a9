"""``torch_graph/size_conditions.py``: conditions on dynamic sizes that are decided for all sizes."""

import contextlib

import hypothesis
import hypothesis.strategies as st
import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.utils._sympy.functions import CeilToInt, FloorDiv, IntTrueDiv, Max, Min, Mod, PythonMod, ToFloat

import opbridge
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.torch_graph.all_sizes import always, constant

N, M = sympy.symbols("n m", integer=True, positive=True)


@pytest.mark.parametrize(
    ("condition", "decided"),
    [
        (sympy.Lt(2 * FloorDiv(N - 1, 2), N), True),
        (sympy.Ge(3 * FloorDiv(N, 3), N + 1), False),
        (sympy.Lt(3 * FloorDiv(N, 3), N), None),
        (sympy.Eq(FloorDiv(N, 4) * 4 + Mod(N, 4), N), True),
        (sympy.Ne(Mod(N, 8), 8), True),
        (sympy.Le(FloorDiv(FloorDiv(N + 1, 2) + 1, 2), N), True),
        (sympy.Lt(FloorDiv(N, 2) + FloorDiv(M, 3), N + M), True),
        (sympy.Eq(Mod(N + Min(1, Mod(N, 8)) * (8 - Mod(N, 8)), 8), 0), True),
        (sympy.Eq(FloorDiv(N + 255, 256), 1), None),
        (sympy.Lt(FloorDiv(N * M, 2), N * M), None),
        (sympy.Lt(FloorDiv(N, M), N + 1), None),
        (sympy.Lt(FloorDiv(N, 8192), N), None),
        (sympy.Gt(N * M - N - M + 1, 0), True),
        (sympy.Le(N * M - N - M + 1, 0), False),
        (sympy.Ne(N * M - N - M + 1, 0), True),
        (sympy.Gt(N * M - 2 * M, 0), None),
        (sympy.Gt(N * M - 3, 0), None),
        (sympy.Ge(4 * CeilToInt(IntTrueDiv(N, 4)), N), True),
        (sympy.Lt(FloorDiv(N, 4), CeilToInt(IntTrueDiv(N, 4))), None),
        (sympy.Eq(Max(N, 4 * FloorDiv(N + 3, 4)), 4 * FloorDiv(N + 3, 4)), True),
        (sympy.Le(PythonMod(6 * FloorDiv(N, 2) + 1, FloorDiv(N, 2)), 1), True),
        (sympy.Lt(PythonMod(N, FloorDiv(N, 3)), 6), True),
        (sympy.Eq(N + 2 * Mod(N, 2) - Mod(N, 2) ** 2, 2 * FloorDiv(N + 1, 2)), True),
        (sympy.Ge(FloorDiv(Max(N, 999 - N) - N, 256), 0), True),
        (sympy.Ge(FloorDiv(Max(N, 999 - N) - N, 256), 3), None),
        (sympy.Le(FloorDiv(Max(N, 999 - N) - N, 256), 3), True),
    ],
)
def test_decided(condition, decided):
    limits = dict.fromkeys((N, M), (2, None))
    assert always(condition, limits) is decided


def test_a_limit_decides():
    assert always(sympy.Eq(FloorDiv(N + 255, 256), 1), {N: (2, 64)}) is True
    assert always(sympy.Eq(FloorDiv(N + 255, 256), 1), {}) is None


@pytest.mark.parametrize(
    ("expression", "limits", "number"),
    [
        (FloorDiv(4 * N - 1, N), (1, None), 3),
        (FloorDiv(4 * N - 1, N), (0, None), 3),  # Python raises an error for 0.
        (FloorDiv(4 * N + 1, N), (2, None), 4),
        (FloorDiv(4 * N + 1, N), (1, None), None),
        (FloorDiv(8 * FloorDiv(N + 3, 4) - FloorDiv(N, 4), FloorDiv(N + 3, 4)), (1, None), None),
        (FloorDiv(Max(N, 4 * CeilToInt(IntTrueDiv(N, 4))), CeilToInt(IntTrueDiv(N, 4))), (0, None), 4),
        (2 + Min(1, Max(0, N - 4)) * (FloorDiv(3 * N - 11, N - 4) - 2), (5, 5), 4),
        (2 + Min(1, Max(0, N - 4)) * (FloorDiv(3 * N - 11, N - 4) - 2), (4, 4), 2),
        (2 + Min(1, Max(0, N - 4)) * (FloorDiv(3 * N - 11, N - 4) - 2), (4, 5), None),
        (FloorDiv(N, 2), (2, None), None),
        (FloorDiv(N, 2), (2, 3), 1),
    ],
)
def test_constant(expression, limits, number):
    assert constant(expression, {N: limits}) == number


@pytest.mark.parametrize(
    ("condition", "given", "decided"),
    [
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Eq(Mod(N, 2), 0)], True),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Ne(Mod(N, 2), 0)], False),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Not(sympy.Or(sympy.Eq(Mod(N, 2), 1), sympy.Eq(Mod(M, 2), 1)))], True),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Or(sympy.Eq(Mod(N, 2), 0), sympy.Eq(Mod(M, 2), 0))], None),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Eq(Mod(M, 2), 0)], None),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Eq(Mod(N, 3), 0)], None),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.Eq(Mod(N, 2), 0), sympy.Eq(Mod(N, 2), 1)], None),
        (sympy.Eq(2 * FloorDiv(N, 2), N), [sympy.false], None),
        (sympy.Eq(ToFloat(FloorDiv(N, 2)), IntTrueDiv(N, 2)), [sympy.Eq(Mod(N, 2), 0)], True),
        (sympy.Eq(ToFloat(FloorDiv(N, 2)), IntTrueDiv(N, 2)), [], None),
    ],
)
def test_decided_in_a_branch(condition, given, decided):
    assert always(condition, dict.fromkeys((N, M), (0, None)), given) is decided


def _remainder(number, divisor):
    try:
        return PythonMod(number, divisor)
    except RecursionError:  # of SymPy's Mod, for some products and minima
        hypothesis.reject()


_SIZES = st.sampled_from([N, M])
_EXPRESSIONS = st.recursive(
    st.one_of(_SIZES, st.integers(-6, 6).map(sympy.Integer)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, st.integers(-3, 3)).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(lambda pair: Min(*pair)),
        st.tuples(inner, inner).map(lambda pair: Max(*pair)),
        st.tuples(inner, st.integers(1, 4)).map(lambda pair: FloorDiv(pair[0], sympy.Integer(pair[1]))),
        st.tuples(inner, st.integers(1, 4)).map(lambda pair: PythonMod(pair[0], sympy.Integer(pair[1]))),
        st.tuples(inner, st.integers(1, 4)).map(lambda pair: CeilToInt(IntTrueDiv(pair[0], sympy.Integer(pair[1])))),
        st.tuples(inner, _SIZES).map(lambda pair: FloorDiv(*pair)),
        st.tuples(inner, _SIZES, st.integers(1, 3)).map(lambda of: FloorDiv(of[0], FloorDiv(of[1], of[2]))),
        st.tuples(inner, _SIZES, st.integers(1, 3)).map(lambda of: _remainder(of[0], FloorDiv(of[1] + 1, of[2]))),
    ),
    max_leaves=6,
)
_RELATIONS = st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])


@pytest.mark.slow
@hypothesis.given(_EXPRESSIONS, _EXPRESSIONS, _RELATIONS, st.integers(0, 5), st.one_of(st.none(), st.integers(5, 30)))
@hypothesis.settings(max_examples=300, deadline=None)
def test_it_agrees_with_all_sizes(left, right, relation, low, high):
    """A condition that is decided has this truth value at every size of the range that is tried and has a value."""
    condition = relation(left, right)
    decided = always(condition, {N: (low, high), M: (low, high)})
    if decided is not None:
        sizes = range(low, 25 if high is None else high + 1)
        for n in sizes:
            for m in sizes if M in condition.free_symbols else [0]:
                with contextlib.suppress(ZeroDivisionError):
                    assert (condition.subs({N: n, M: m}) == sympy.true) is decided


@pytest.mark.quick("maximum with padding", every=3)
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ],
    ids=["maximum", "maximum with padding", "mean", "mean with padding"],
)
def test_pooling_in_ceil_mode_has_dynamic_sizes(pool, tmp_path):
    class Pool(torch.nn.Module):
        def forward(self, x):
            return pool(x)

    sizes = {2: torch.export.Dim("height", min=4), 3: torch.export.Dim("width", min=4)}
    bundle = opbridge.export(Pool(), (torch.randn(1, 2, 7, 10),), dynamic_shapes=(sizes,), path=tmp_path / "bundle")
    assert bundle.verified


@pytest.mark.parametrize("lacks", [lambda n, k: (k - n % k) % k, lambda n, k: -n % k], ids=["two remainders", "one"])
def test_padding_to_a_multiple_keeps_the_size_simple(lacks):
    def model(x):
        for multiple in (3, 2, 4):
            x = F.pad(x, (0, lacks(x.shape[0], multiple))).reshape(-1, multiple).amax(1)
            x = F.pad(x, (x.shape[0] % 2, 0)) + 1
        return x

    captured = capture(model, (torch.randn(9),), dynamic_shapes=({0: "n"},), rewrites=Catalog.load().rewrites())
    size = captured.program.graph.output_node().args[0][0].meta["val"].shape[0].node.expr
    assert sum(part.is_Symbol for part in sympy.preorder_traversal(size)) == 1
    for length in (9, 13, 40, 26):
        x = torch.randn(length)
        torch.testing.assert_close(captured.program.module(check_guards=False)(x), model(x))


def test_other_padding_is_left_as_it_is():
    def model(x, y):
        return F.pad(x, (0, x.shape[0] % 3)), F.pad(x, (0, -y.shape[0] % 4)), F.pad(x, (y.shape[0] % 2, 1))

    shapes = ({0: "n"}, {0: "m"})
    captured = capture(
        model, (torch.randn(9), torch.randn(5)), dynamic_shapes=shapes, rewrites=Catalog.load().rewrites()
    )
    for first, second in ((9, 5), (13, 8), (20, 6)):
        x, y = torch.randn(first), torch.randn(second)
        for found, expected in zip(captured.program.module(check_guards=False)(x, y), model(x, y), strict=True):
            torch.testing.assert_close(found, expected)
