"""Operators that ONNX Runtime's CPU kernels run slowly, and the forms that replace them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from roundtrip import travel
from torch.nn import functional as F

from opbridge.catalog.declare.nan import ABSENT

pytestmark = pytest.mark.newest


class Call(torch.nn.Module):
    """Calls a function."""

    def __init__(self, function: Any, slope: Any = None) -> None:
        super().__init__()
        self.function = function
        self.slope = None if slope is None else torch.nn.Parameter(slope)

    def forward(self, x: Any) -> Any:
        return self.function(x) if self.slope is None else self.function(x, self.slope)


IMAGE, VOLUME = torch.randn(2, 8, 40, 40), torch.randn(1, 3, 4, 5, 6)
SLOPES = torch.linspace(-1, 2, 8)
PLACES = torch.tensor([39, 0, 0, 17, 3, 12, 12, 38])

CASES: dict[str, tuple[Any, Any, set[str], str]] = {
    "softmax": (Call(lambda x: x.softmax(1)), IMAGE, {"Exp", "ReduceMax", "ReduceSum"}, "Softmax"),
    "log_softmax": (Call(lambda x: x.log_softmax(-2)), IMAGE, {"Exp", "ReduceMax", "Log"}, "LogSoftmax"),
    "a slope for each channel": (Call(F.prelu, SLOPES), IMAGE, {"Relu", "Min", "Mul", "Add"}, "PRelu"),
    "one slope": (Call(F.prelu, SLOPES[:1]), IMAGE, {"LeakyRelu"}, "PRelu"),
    "elements of rows": (Call(lambda x: x.index_select(-1, PLACES)), IMAGE, {"Transpose"}, "Expand"),
    "an image of few elements": (Call(F.instance_norm), IMAGE, {"InstanceNormalization"}, "ReduceMean"),
    "a volume": (Call(lambda x: F.interpolate(x, scale_factor=(1, 3, 2))), VOLUME, {"Gather"}, "Resize"),
    "a volume of other sizes": (Call(lambda x: F.interpolate(x, scale_factor=1.7)), VOLUME, {"Gather"}, "Resize"),
    "the nearest centers of a volume": (
        Call(lambda x: F.interpolate(x, (7, 3, 11), mode="nearest-exact")),
        VOLUME,
        {"Gather"},
        "Resize",
    ),
}


@pytest.mark.quick("softmax")
@pytest.mark.parametrize("name", CASES)
def test_the_faster_form_gives_the_same(name: str) -> None:
    model, x, made, slow = CASES[name]
    trip = travel(model, (x,))
    assert made <= set(trip.op_types)
    assert slow not in trip.op_types
    trip.check(torch.randn_like(x))
    large = torch.randn_like(x)
    large.view(-1)[:2] = torch.tensor([torch.inf, -torch.inf])
    trip.check(large)


@pytest.mark.quick("{'size': (50, 90), 'align_corners': True}", every=3)
@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 3},
        {"scale_factor": 0.6},
        {"scale_factor": (1.7, 2.3)},
        {"size": (50, 33)},
        {"size": (50, 90), "align_corners": True},
    ],
    ids=str,
)
def test_bicubic_resizing_is_two_products(options: dict[str, Any]) -> None:
    x = torch.randn(2, 24, 40, 30)
    trip = travel(Call(lambda x: F.interpolate(x, mode="bicubic", **options)), (x,))
    assert "Resize" not in trip.op_types
    trip.check(torch.randn_like(x), atol=2e-5, rtol=1e-5)


@pytest.mark.quick("{'num_layers': 2, 'bidirectional': True}", every=2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nonlinearity": "relu", "batch_first": True},
        {"num_layers": 2, "bidirectional": True},
        {"bias": False, "bidirectional": True, "nonlinearity": "relu"},
    ],
    ids=str,
)
def test_a_recurrent_layer_is_a_loop_over_its_steps(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.RNN(16, 32, **options).eval()
    trip = travel(
        layer, (torch.randn(7, 9, 16),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    )
    assert "Scan" in trip.op_types
    assert "RNN" not in trip.op_types
    for steps, rows in ((7, 9), (1, 12), (30, 1)):
        trip.check(torch.randn(steps, rows, 16))


ANY_SIZE = dict.fromkeys((2, 3, 4), torch.export.Dim.DYNAMIC)
NORMS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], Any]] = {
    "volumes of any size": (torch.nn.InstanceNorm3d(3, affine=True), (2, 3, 4, 4, 9), (2, 3, 80, 96, 64), ANY_SIZE),
    "images": (torch.nn.InstanceNorm2d(3), (2, 3, 640, 640), (2, 3, 640, 640), {}),
    "groups of channels": (torch.nn.GroupNorm(2, 8), (2, 8, 240, 320), (3, 8, 240, 320), {0: "batch"}),
}


@pytest.mark.quick("volumes of any size", every=3)
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_of_many_elements_is_exact(name: str) -> None:
    torch.manual_seed(0)
    norm, example, sizes, dynamic = NORMS[name]
    for parameter in norm.parameters():
        torch.nn.init.uniform_(parameter)
    trip = travel(norm.eval(), (torch.rand(example),), dynamic_shapes=(dynamic,))
    assert "InstanceNormalization" not in trip.op_types
    x = 5 * torch.rand(sizes)
    with torch.no_grad():
        exact = copy.deepcopy(norm).double()(x.double())
        error = (norm(x) - exact).abs().max()
    result = torch.from_numpy(trip.run(x)[0])
    assert (result - exact).abs().max() < 15 * error


TOKENS = torch.randn(2, 3, 9, 8)
BEFORE = torch.ones(9, 9, dtype=torch.bool).tril()
SHIFTED = torch.zeros(9, 9).masked_fill(torch.arange(9) // 3 != (torch.arange(9) // 3)[:, None], -100.0)


def attend(x: Any, mask: Any) -> Any:
    """Attention of the tokens to each other, with a mask of numbers."""
    return (x @ x.mT + mask).softmax(-1) @ x


MASKED: dict[str, Any] = {
    "causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "a mask of numbers": lambda x: attend(x, SHIFTED),
    "hidden scores are replaced": lambda x: (x @ x.mT).masked_fill(~BEFORE, -1e9).softmax(-1) @ x,
    "a mask that depends on the inputs too": lambda x: F.scaled_dot_product_attention(
        x, x, x, BEFORE & (x[..., None, :, 0] > 0)
    ),
}


@pytest.mark.quick("a mask that depends on the inputs too", every=2)
@pytest.mark.parametrize("name", MASKED)
def test_hidden_scores_are_bounded(name: str) -> None:
    torch.manual_seed(0)
    trip = travel(Call(MASKED[name]), (TOKENS,), nan=ABSENT, opset=17 if name == "causal" else None)
    assert {"ReduceMax", "Max", "Softmax"} <= set(trip.op_types)
    for scale in (1.0, 1e-3, 30.0, 1e18):
        trip.check(scale * TOKENS.flip(0), atol=1e-5 * scale)


@pytest.mark.quick
def test_scores_are_not_bounded_where_nan_counts() -> None:
    """The product of a weight of 0 and an infinite value is NaN."""
    trip = travel(Call(lambda x: attend(x, SHIFTED)), (TOKENS,))
    assert "Max" not in trip.op_types


@pytest.mark.quick
def test_a_sum_before_a_normalization_stays_apart() -> None:
    layer = torch.nn.LayerNorm(8)
    trip = travel(Call(lambda x: layer(x + x.flip(0))), (TOKENS[0],))
    assert "Sum" in trip.op_types
    trip.check(torch.randn_like(TOKENS[0]))


STAYS: dict[str, tuple[Any, Any, str]] = {
    "softmax over the last axis": (Call(lambda x: x.softmax(-1)), IMAGE, "Softmax"),
    "softmax of few numbers": (Call(lambda x: x.softmax(1)), IMAGE[:, :, :5], "Softmax"),
    "softmax in float64": (Call(lambda x: x.softmax(1)), IMAGE.double(), "Softmax"),
    "few elements of rows": (Call(lambda x: x[..., [3, 1]].sin()), IMAGE, "Gather"),
    "attention without a mask": (Call(lambda x: attend(x, 0.5)), TOKENS, "MatMul"),
    "a mask of inputs only": (Call(lambda x: attend(x, torch.where(x.sum() > 0, 0.0, -1e9))), TOKENS, "Where"),
    "attention whose weights are returned": (
        Call(lambda x: (w := (x @ x.mT + SHIFTED).softmax(-1), w @ x)),
        TOKENS,
        "Add",
    ),
    "a recurrent layer of few numbers": (torch.nn.RNN(40, 8), IMAGE[0, :, :2], "RNN"),
    "an image": (Call(lambda x: F.interpolate(x, scale_factor=2)), IMAGE, "Resize"),
    "bicubic of a small image": (
        Call(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic")),
        IMAGE[:, :1, :5, :5],
        "Resize",
    ),
    "a volume between its elements": (
        Call(lambda x: F.interpolate(x, scale_factor=1.5, mode="trilinear")),
        VOLUME,
        "Resize",
    ),
}


@pytest.mark.quick("an image", "softmax of few numbers", every=3)
@pytest.mark.parametrize("name", STAYS)
def test_others_stay(name: str) -> None:
    model, x, kept = STAYS[name]
    op_types = travel(model, (x,), nan=ABSENT).op_types
    assert kept in op_types
    assert "Max" not in op_types
