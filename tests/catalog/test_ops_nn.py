"""The catalog's operators of neural networks where PyTorch's samples don't lead: ties, NaN, tails, other sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from roundtrip import travel  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import opbridge  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.capture.rewriting import rewriting  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.catalog.declare.spec import OpSpec  # noqa: E402
from opbridge.catalog.ops.nn import (  # noqa: E402
    adaptive_pool,
    attention,
    avg_pool,
    batch_norm,
    conv_transpose,
    ctc_loss,
    fractional_max_pool,
    grid_sampler_3d,
    im2col,
    layer_norm,
    pad,
    pixel_unshuffle,
)
from opbridge.proof.verify.distribution import compare_runs  # noqa: E402

pytestmark = pytest.mark.newest

INF, NAN = math.inf, math.nan
aten, F = torch.ops.aten, nn.functional


def whole(*sizes: int) -> Tensor:
    """Small whole numbers: many ties, and no rounding."""
    return torch.randint(0, 4, sizes, generator=torch.Generator().manual_seed(len(sizes))).float()


def drawn(*sizes: int) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def holed(x: Tensor) -> Tensor:
    x = x.clone()
    x.view(-1)[3::17] = NAN
    x.view(-1)[5::23] = -INF
    return x


GRID = torch.cat(
    [
        1.5 * drawn(2, 30, 3),
        torch.tensor([NAN, INF, -INF, 1.0, -1.0, 1e20]).reshape(1, 6, 1).expand(2, 6, 3),
        torch.tensor([[NAN, 0.1, 0.2], [INF, 0.3, 0.3], [0.1, -INF, 0.0], [0.0, 0.5, 1 / 6]]).expand(2, 4, 3),
    ],
    1,
).reshape(2, 4, 5, 2, 3)
VOLUME = drawn(2, 3, 4, 5, 6)

Case = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for sizes in ((1, 1), (3, 4), (7, 11)):
        cases[f"adaptive mean {sizes}"] = (
            *(adaptive_pool.adaptive_avg_pool2d, aten._adaptive_avg_pool2d),
            (holed(whole(2, 3, 7, 9)), sizes),
        )
        cases[f"adaptive largest {sizes}"] = (
            *(adaptive_pool.adaptive_max_pool2d, aten.adaptive_max_pool2d),
            (holed(whole(2, 3, 7, 9)), sizes),
        )
    for mode, padding_mode, align in itertools.product((0, 1), (0, 1, 2), (True, False)):
        cases[f"grid {mode} {padding_mode} {align}"] = (
            *(grid_sampler_3d.grid_sampler_3d, aten.grid_sampler_3d),
            (VOLUME, GRID, mode, padding_mode, align),
        )
    for length, kernel, stride, padding in ((9, 3, 2, 1), (5, 1, 3, 0), (8, 3, 3, 1), (7, 4, 2, 2)):
        for include, divisor in itertools.product((True, False), (None, 5)):
            cases[f"mean {length} {kernel} {stride} {padding} {include} {divisor}"] = (
                *(avg_pool.avg_pool2d, aten.avg_pool2d),
                (whole(1, 2, length, length + 1), [kernel], [stride], [padding], True, include, divisor),
            )
    for amounts in ([7, -1, 3, -1], [-2, 6, -1, -2], [0, 0, -3, 7]):
        x = drawn(2, 3, 9, 8)
        cases[f"replicate {amounts}"] = (pad.replication_pad2d, aten.replication_pad2d, (x, amounts))
        cases[f"reflect {amounts}"] = (pad.reflection_pad2d, aten.reflection_pad2d, (x, amounts))
    for amounts in ([2, 1, 3, -1], [-2, 3, -1, -2], [0, 0, -3, 3]):
        cases[f"circular {amounts}"] = (pad.pad, aten.pad, (drawn(2, 3, 9, 8), amounts, "circular"))
    maximum = fractional_max_pool
    cases["fractional 2d"] = (
        *(maximum.fractional_max_pool2d, aten.fractional_max_pool2d),
        (whole(2, 3, 9, 8), (2, 3), (4, 3), torch.rand(2, 3, 2)),
    )
    cases["fractional 3d"] = (
        *(maximum.fractional_max_pool3d, aten.fractional_max_pool3d),
        (holed(whole(3, 7, 9, 8)), (2, 3, 2), (1, 4, 3), torch.rand(1, 3, 3)),
    )
    transposed = (drawn(2, 3, 5, 4), drawn(3, 2, 2, 3), drawn(2), [2, 1], [1, 2], [2, 1], 1, [3, 2])
    cases["transposed"] = (conv_transpose.conv_transpose, F.conv_transpose2d, transposed)
    cases["transposed, no batch"] = (
        *(conv_transpose.conv_transpose, F.conv_transpose1d),
        (drawn(4, 5), drawn(4, 1, 3), None, [1], [0], [2], 2, [3]),
    )
    wide = drawn(4, 3, 5).double()
    cases["layer norm in float64"] = (
        *(layer_norm.native_layer_norm, aten.native_layer_norm),
        (wide, [3, 5], wide[0], wide[1], 1e-3),
    )
    cases["im2col"] = (im2col.im2col, aten.im2col, (drawn(2, 3, 9, 8), (2, 3), (2, 1), (1, 2), (2, 1)))
    cases["unshuffle"] = (pixel_unshuffle.pixel_unshuffle, torch.pixel_unshuffle, (drawn(2, 1, 3, 12, 8), 2))
    cases["shuffle"] = (pixel_unshuffle.pixel_shuffle, torch.pixel_shuffle, (drawn(2, 1, 12, 2, 3), 2))
    mask = torch.tensor([[True, False, True], [False, False, False]])
    heads = (drawn(2, 4, 2, 8), drawn(2, 2, 3, 8), drawn(2, 2, 3, 8))
    cases["attention, a row masked"] = (
        lambda *x: attention.attention(*x, attn_mask=mask, enable_gqa=True),
        lambda *x: F.scaled_dot_product_attention(*x, attn_mask=mask, enable_gqa=True),
        heads,
    )
    for training in (True, False):
        statistics = (drawn(3), drawn(3), drawn(3), drawn(3).abs())
        cases[f"batch norm {training}"] = (
            lambda *x: batch_norm.native_batch_norm(*x)[:3],
            aten.native_batch_norm,
            (10 + drawn(4, 3, 5), *(value.clone() for value in statistics), training, 0.3, 1e-3),
        )
    return cases


CASES = _cases()


def _compare(found: Any, expected: Any, rtol: float = 1e-5) -> None:
    if isinstance(expected, Tensor):
        found, expected = (found,), (expected,)
    for actual, wanted in zip(found, expected, strict=True):
        assert actual.shape == wanted.shape
        assert actual.dtype == wanted.dtype
        np.testing.assert_allclose(actual.numpy(), wanted.numpy(), rtol, rtol)


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    own, torchs, args = CASES[name]
    _compare(own(*args), torchs(*args), 3e-4 if "grid" in name else 1e-5)


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch takes bicubic sampling of volumes from 2.15 on")
@pytest.mark.parametrize(("padding_mode", "align"), itertools.product((0, 1, 2), (True, False)))
def test_cubic_volumes(padding_mode: int, align: bool) -> None:
    places = (VOLUME, GRID[:, :3], 2, padding_mode, align)
    _compare(grid_sampler_3d.grid_sampler(*places), aten.grid_sampler_3d(*places))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_all_pairs_of_any_number_of_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    def distances(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(F.pdist(x, p) for p in (0.0, 1.0, 2.0, 3.0, INF))

    shapes = (({0: torch.export.Dim("rows", min=0), 1: torch.export.Dim("columns", min=0)},),)
    session = _session(distances, (drawn(5, 3).to(dtype),), tmp_path / "bundle", dynamic_shapes=shapes)
    for rows, columns in itertools.product((0, 1, 2, 3, 40, 41), (0, 1, 20)):
        x = holed(drawn(rows, columns)).to(dtype)
        x[rows // 2 :] = x[: rows - rows // 2].clone()
        for p, result in zip((0.0, 1.0, 2.0, 3.0, INF), session(x.numpy()), strict=True):
            expected = F.pdist(x, p).numpy()
            rtol = 1e-12 if dtype == torch.float64 else 1e-5
            np.testing.assert_allclose(result, expected, rtol, err_msg=f"{p} {x.shape}")


@pytest.mark.parametrize(("time", "classes", "longest"), [(20, 6, 8), (5, 4, 4), (2, 3, 3)])
def test_ctc_loss(time: int, classes: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def looped(unfinished: Callable[..., Any], advance: Callable[..., Any], carried: tuple[Tensor, ...]) -> Any:
        while unfinished(*carried):
            carried = advance(*carried)
        return carried

    # Outside of an export torch compiles each loop, which takes seconds.
    monkeypatch.setattr(torch, "while_loop", looped)
    batch = 4
    log_probs = drawn(time, batch, classes).double().log_softmax(-1)
    targets = torch.randint(1, classes, (batch, longest), generator=torch.Generator().manual_seed(time))
    lengths = torch.tensor([longest, 0, 1, longest - 1])
    steps = torch.tensor([time, time, time - 1, time])
    row = torch.cat([targets[i, : lengths[i]] for i in range(batch)])
    for reduction, zero in itertools.product(("none", "mean", "sum"), (True, False)):
        options = {"reduction": reduction, "zero_infinity": zero}
        expected = F.ctc_loss(log_probs, targets, steps, lengths, **options)
        for given, *sizes in (
            (targets, steps, lengths),
            (row, steps, lengths),
            (row, steps.tolist(), lengths.tolist()),
        ):
            _compare(ctc_loss.ctc_loss(F.ctc_loss, log_probs, given, *sizes, **options), expected)


class Model(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def _session(function: Callable[..., Any], inputs: Sequence[Tensor], folder: Path, **options: Any) -> Any:
    return opbridge.load(
        opbridge.export(Model(function), tuple(inputs), path=folder, verify=False, nan="exact", **options).path
    )


@pytest.mark.sweep
def test_ctc_loss_at_another_length(tmp_path: Path) -> None:
    def loss(log_probs: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        return F.ctc_loss(log_probs.log_softmax(-1), targets, steps, lengths, reduction="none")

    def inputs(time: int, longest: int) -> tuple[Tensor, ...]:
        targets = torch.randint(1, 5, (2, longest), generator=torch.Generator().manual_seed(0))
        return drawn(time, 2, 5), targets, torch.tensor([time, time - 2]), torch.tensor([longest, 1])

    shapes = (({0: torch.export.Dim("time")}, {1: torch.export.Dim("longest")}, None, None),)
    session = _session(loss, inputs(8, 3), tmp_path / "bundle", dynamic_shapes=shapes)
    for time, longest in ((8, 3), (31, 6)):
        given = inputs(time, longest)
        np.testing.assert_allclose(session(*(x.numpy() for x in given))[0], loss(*given).numpy(), 1e-5)


TAILS = torch.tensor([-100.0, -87, -40, -18, -12, -9, -3, -1e-3, -1e-7, -1e-30, 0, 1e-30, 1e-7, 1e-3, 1, 9, 40, 100])
ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "logsigmoid": F.logsigmoid,
    "elu": lambda x: F.elu(x, 1.5),
    "selu": torch.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "log1p": lambda x: torch.log1p(x.clamp_min(-0.999)),
    "expm1": lambda x: torch.expm1(x.clamp_max(80)),
}


def test_tails_of_activations(tmp_path: Path) -> None:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for function in ACTIVATIONS.values())

    results = _session(forward, (TAILS,), tmp_path / "bundle")(TAILS.numpy())
    for (name, function), result in zip(ACTIVATIONS.items(), results, strict=True):
        np.testing.assert_allclose(result, function(TAILS.double()).numpy(), 2e-6, 1e-37, err_msg=name)


def test_dropout_stays_inside_a_model_and_draws_anew(tmp_path: Path) -> None:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        return F.dropout(x, 0.25) * 3, F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    x = torch.ones(1, 1, 64, 64)
    session = _session(forward, (x,), tmp_path / "bundle")
    (first, mixed), (again, _) = session(x.numpy()), session(x.numpy())
    assert sorted({float(value) for value in first.reshape(-1)}) == [0.0, 4.0]
    assert 0.65 < (first > 0).mean() < 0.85
    assert (first != again).any()
    assert mixed.std() > 0.05


@pytest.mark.sweep
def test_the_graph_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    import onnx

    def forward(x: Tensor) -> tuple[Tensor, ...]:
        return F.adaptive_avg_pool2d(x, (5, 3)), *F.adaptive_max_pool2d(x, (5, 3), True), F.pdist(x.flatten(0, 2))

    def nodes(size: int) -> int:
        _session(forward, (drawn(1, 2, size, size),), tmp_path / str(size))
        return len(onnx.load(tmp_path / str(size) / "model.onnx").graph.node)

    # For both, windows differ in length, a Gather along the last axis has its faster form, and pdist needs no kernel.
    assert nodes(31) == nodes(37)


def test_a_rewrite_may_leave_a_call_to_the_original() -> None:
    def only_negative(original: Callable[..., Tensor], x: Tensor) -> Any:
        return x if x.shape[0] == 1 else NotImplemented

    for target in ("torch.abs", "torch.nn.functional.softsign"):
        with rewriting([OpSpec(target, "rewrite", only_negative)]) as used:
            function = torch.abs if target == "torch.abs" else F.softsign
            assert function(torch.tensor([-1.0, -1.0]))[0] != -1
            assert not list(used)
            assert function(torch.tensor([-1.0])) == -1
            assert list(used) == [target]


def test_random_results_that_never_vary_are_the_same() -> None:
    runs = [np.array([0.1, 0.7, 0.7, 0.2])] * 6
    assert compare_runs(runs, runs) == ""
    assert "differ" in compare_runs(runs, [run + 1 for run in runs])


def test_average_pooling_with_all_arguments_by_position() -> None:
    def pooled(x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(x, 2, 2, [x.shape[0] // 2, 1], False, True, 3)

    x, rewrites = torch.randn(2, 3, 8, 8), Catalog.load().rewrites()
    for shapes in (None, ({0: torch.export.Dim("batch", min=2, max=3)},)):
        program = capture(pooled, (x,), dynamic_shapes=shapes, rewrites=rewrites).program
        torch.testing.assert_close(program.module()(x), pooled(x))


CLASS_WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.1, 0.7])


@pytest.mark.quick("shape2-weighted-none", "shape2-equal-sum", every=9)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, CLASS_WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3), (5,)])
def test_cross_entropy_with_smoothed_labels(reduction: str, weight: Tensor | None, shape: tuple[int, ...]) -> None:
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x, target, weight, ignore_index=1, label_smoothing=0.1, reduction=reduction)

    target = {1: torch.tensor(3), 2: torch.arange(6) % 5, 3: torch.tensor([[0, 1, 2], [3, 4, 1]])}[len(shape)]
    travel(loss, (torch.randn(shape), target)).check(torch.randn(shape), target)


@pytest.mark.parametrize(
    ("amounts", "mode"),
    [((2, 1, 3, -1), "reflect"), ((2, -1, 0, 0), "replicate"), ((0, 2, 9, 3), "circular"), ((1, 2, 0, 0), "constant")],
)
def test_padding_is_one_node(amounts: tuple[int, ...], mode: str) -> None:
    x = drawn(2, 3, 9, 8)
    trip = travel(lambda x: F.pad(x, amounts, mode), (x,))
    assert trip.op_types == ["Pad"]
    trip.check(x, rtol=0, atol=0)


def test_padding_by_nothing_is_no_node() -> None:
    trip = travel(lambda x: F.pad(x, (0, 0, 0, 0)) + 1, (drawn(2, 3, 4, 5),))
    assert trip.op_types == ["Add"]
