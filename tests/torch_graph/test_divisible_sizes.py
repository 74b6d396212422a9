"""``torch_graph/divisible_sizes.py``: what is computed from a size that is a multiple of a number."""

import hypothesis
import hypothesis.strategies as st
import onnx
import onnxruntime
import pytest
import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorDiv, IntTrueDiv, Max, Min, Mod, PythonMod

import opbridge
from opbridge.torch_graph.divisible_sizes import SizeFacts, shortened_by

N, M = sympy.symbols("n m", integer=True, positive=True)
KNOWN = SizeFacts(frozenset({(N, (2, None)), (M, (2, None))}), frozenset({(N, 32), (M, 6)}))


@pytest.mark.parametrize(
    ("size", "short"),
    [
        (FloorDiv(FloorDiv(N, 2) + 1, 2), FloorDiv(N, 4)),
        (FloorDiv(N + 31, 32), FloorDiv(N, 32)),
        (2 * FloorDiv(N, 2), N),
        (FloorDiv(N, 4) + FloorDiv(N, 8), 3 * FloorDiv(N, 8)),
        (Mod(FloorDiv(N, 8), 4), 0),
        (PythonMod(-FloorDiv(N, 4), 8), 0),
        (Min(FloorDiv(N, 8), 4), 4),
        (
            Max(FloorDiv(N + Min(FloorDiv(N, 16), 4), FloorDiv(N, 16)), 1),
            FloorDiv(N + Min(FloorDiv(N, 16), 4), FloorDiv(N, 16)),
        ),
        (4 * CeilToInt(IntTrueDiv(FloorDiv(N, 2), 4)), FloorDiv(N, 2)),
        (FloorDiv(N + M, 2), FloorDiv(N, 2) + FloorDiv(M, 2)),
        (sympy.Eq(FloorDiv(M, 4) * 4, M), sympy.Eq(4 * FloorDiv(M, 4), M)),
        (sympy.Gt(FloorDiv(N, 8), 3), sympy.true),
        (N + 1, N + 1),
    ],
)
def test_short_forms(size, short):
    assert shortened_by(KNOWN, size) == short


SIZES = st.recursive(
    st.sampled_from([N, M, N + 1, M - 4, sympy.Integer(3)]),
    lambda inner: st.builds(
        lambda kind, a, b: kind(a, b),
        st.sampled_from(
            [
                sympy.Add,
                sympy.Mul,
                Max,
                Min,
                lambda a, b: a - b,
                lambda a, _: FloorDiv(a, 2),
                lambda a, _: FloorDiv(a + 15, 16),
                lambda a, _: PythonMod(a, 4),
            ]
        ),
        inner,
        inner,
    ),
    max_leaves=6,
)


@hypothesis.given(SIZES, st.sampled_from([None, sympy.Eq, sympy.Lt, sympy.Le]))
@hypothesis.settings(max_examples=150, deadline=None)
def test_has_the_same_value_at_all_multiples(size, relation):
    expression = size if relation is None else relation(size, M)
    short = shortened_by(KNOWN, expression)
    assert shortened_by(KNOWN, short) == short
    for n in (32, 64, 96, 320):
        for m in (6, 12, 18, 96):
            values = {N: sympy.Integer(n), M: sympy.Integer(m)}
            assert expression.xreplace(values) == short.xreplace(values)


class Halving(torch.nn.Module):
    """Halves a size three times, and pads it to a multiple of two, and of the window, where that is needed."""

    def __init__(self, require):
        super().__init__()
        self.require = require

    def forward(self, x):
        self.require(x.shape[1])
        for _ in range(3):
            if x.shape[1] % 2 == 1:
                x = torch.nn.functional.pad(x, (0, 1))
            x = x[:, ::2] + x[:, 1::2]
        x = torch.nn.functional.pad(x, (0, (4 - x.shape[1] % 4) % 4))
        return x.reshape(x.shape[0], -1, 4).sum(-1)


def _raise_if_odd(size):
    if size % 32 != 0:
        raise ValueError("not a multiple of 32")


def _raise_if_above(size):
    if size % 2 > 0 or (size // 2) % 16 > 0:
        raise ValueError("not a multiple of 32")


@pytest.mark.parametrize("require", [_raise_if_odd, _raise_if_above])
def test_a_required_multiple_leaves_no_padding_in_the_model(require, tmp_path):
    bundle = opbridge.export(
        Halving(require), (torch.randn(2, 64),), path=tmp_path / "out", dynamic_shapes={"x": {0: "batch", 1: "n"}}
    )
    assert bundle.verified
    nodes = {node.op_type for node in onnx.load(bundle.model_file("onnxruntime")).graph.node}
    assert not nodes & {"Pad", "If", "Mod", "Div"}


@pytest.mark.skipif(torch.__version__ < "2.14", reason="torch 2.13 can't capture three paddings on a condition")
def test_a_multiple_that_no_error_requires_is_not_assumed(tmp_path):
    model, x = Halving(lambda size: None), torch.randn(2, 64)
    bundle = opbridge.export(model, (x,), path=tmp_path / "out", dynamic_shapes={"x": {1: "n"}})
    assert bundle.verified
    session = onnxruntime.InferenceSession(bundle.model_file("onnxruntime"))
    for size in (63, 65, 36):
        x = torch.randn(2, size)
        torch.testing.assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), model(x))


class Windows(torch.nn.Module):
    """Cuts a size into windows, which are not larger than the size."""

    def forward(self, x):
        if x.shape[1] % 4 != 0:
            raise ValueError("not a multiple of 4")
        window = torch.sym_min(x.shape[1], 16)
        x = torch.nn.functional.pad(x, (0, (window - x.shape[1] % window) % window))
        windows = x.reshape(x.shape[0], x.shape[1] // window, window)
        return windows.softmax(-1).reshape(x.shape)


def test_pads_to_a_multiple_of_a_size(tmp_path):
    model, x = Windows(), torch.randn(2, 24)
    bundle = opbridge.export(model, (x,), path=tmp_path / "out", dynamic_shapes={"x": {1: "n"}})
    assert bundle.verified
    session = onnxruntime.InferenceSession(bundle.model_file("onnxruntime"))
    for size in (4, 8, 16, 20, 100):
        x = torch.randn(2, size)
        torch.testing.assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), model(x))
