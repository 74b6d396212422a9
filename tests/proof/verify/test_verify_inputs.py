"""Fresh inputs keep the example's character; sizes keep the program's constraints."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verify_models import Function, captured, onnx_model, session

import opbridge
from opbridge.proof.verify.fresh import EXAMPLE_RANGE, EXAMPLE_ROWS, EXAMPLE_VALUES, WIDE_RANGE, fresh_tensor
from opbridge.proof.verify.inputs import InputSpecs, to_numpy, to_torch
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verify import verify

Dim = torch.export.Dim


def fresh(example: torch.Tensor, shape: Any = None, scale: int = WIDE_RANGE, seed: int = 0) -> torch.Tensor:
    return fresh_tensor(example, tuple(shape or example.shape), np.random.default_rng(seed), scale)


def test_floats_follow_the_distribution_and_stay_in_range() -> None:
    image = fresh(torch.rand(3, 40, 40), (3, 50, 50))
    assert image.shape == (3, 50, 50)
    assert image.min() >= 0
    assert image.max() <= 1
    normal = torch.randn(5000) * 3 + 10
    made = fresh(normal)
    assert abs(float(made.mean() - 10)) < 0.3
    assert abs(float(made.std() - 3)) < 0.3
    assert not torch.isin(made, normal).all()


def test_integers_stay_in_range_and_sorted() -> None:
    tokens = torch.randint(5, 40, (4, 30))
    made = fresh(tokens)
    assert int(made.min()) >= int(tokens.min())
    assert int(made.max()) <= int(tokens.max())
    offsets = torch.tensor([0, 3, 3, 9, 20])
    assert (fresh(offsets).diff() >= 0).all()
    assert (fresh(torch.rand(9).sort(descending=True)[0]).diff() <= 0).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_masks_have_both_values_and_no_row_becomes_empty(dtype: torch.dtype) -> None:
    made = fresh(torch.ones(6, 9, dtype=dtype)).bool()
    assert made.any()
    assert not made.all()
    assert made.any(-1).all()
    causal = torch.ones(8, 8).tril().to(dtype)
    made = fresh(causal, (11, 11)).int()
    assert (made.diff(dim=-1) <= 0).all()
    assert made.any(-1).all()


def test_structure_is_kept() -> None:
    boxes = torch.rand(20, 4)
    boxes[:, 2:] += boxes[:, :2]
    made = fresh(boxes)
    assert (made[:, 2:] >= made[:, :2]).all()
    rows = fresh(torch.softmax(torch.randn(6, 10), -1))
    assert torch.allclose(rows.sum(-1), torch.ones(6))
    matrix = torch.randn(5, 5)
    torch.linalg.cholesky(fresh(matrix @ matrix.T + torch.eye(5)))
    masked = torch.randn(6, 8).masked_fill(torch.rand(6, 8) < 0.3, -torch.inf)
    assert torch.isneginf(fresh(masked)).any()
    assert torch.isfinite(fresh(masked)).any(-1).all()


def test_scale_falls_back_to_the_examples_own_values() -> None:
    count = torch.tensor(5)
    assert int(fresh(count)) == 4
    assert int(fresh(count, scale=EXAMPLE_RANGE)) == 5
    values = torch.tensor([1.5, 2.5, 7.0])
    assert torch.isin(fresh(values, scale=EXAMPLE_VALUES), values).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 3)])
def test_every_dtype_and_shape_survives_numpy(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    example = torch.ones(shape, dtype=dtype)
    made = fresh(example)
    assert (made.dtype, made.shape) == (dtype, example.shape)
    array = to_numpy(made)
    assert torch.equal(to_torch(array, example), made)
    if dtype is torch.complex64:
        assert array.shape == (*shape, 2)


class Recording:
    def __init__(self) -> None:
        self.fed: list[Any] = []

    def run(self, feeds: Any) -> Any:
        self.fed.append(feeds)
        return {}


def test_related_dimensions_and_keyword_order() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, scale: torch.Tensor, bias: torch.Tensor, mode: str) -> torch.Tensor:
            return x * scale + bias.sum()

    n = Dim("n", min=3, max=8)
    args, kwargs = (torch.randn(4, 2),), {"bias": torch.randn(5), "scale": torch.rand(4, 1), "mode": "a"}
    item = captured(Model(), args, {"x": {0: n}, "bias": {0: n + 1}, "scale": {0: n}, "mode": None}, kwargs)
    specs = InputSpecs(item)
    for sizes in specs.sizes.others(1):
        shapes = {name: array.shape for name, array in specs.feeds(specs.fresh(sizes, 0, WIDE_RANGE)).items()}
        assert shapes["x"][0] == shapes["scale"][0] == shapes["bias"][0] - 1
        assert 3 <= shapes["x"][0] <= 8
    engine = Recording()
    found = verify(CapturedReference(item), engine, engine="none")
    assert len(engine.fed) == 3
    assert found.eager_matches_capture is True


@pytest.mark.parametrize("number", [4, -4])
def test_dynamic_integer_input_takes_other_values(number: int) -> None:
    item = captured(Function(lambda x, n: x * n), (torch.randn(3), number), ({}, Dim.DYNAMIC))
    engine = Recording()
    verify(CapturedReference(item), engine, engine="none")
    values = [int(feeds[item.input_names[1]]) for feeds in engine.fed]
    assert values[0] == number
    assert len(set(values)) == 3
    assert engine.fed[0][item.input_names[1]].dtype == np.int64


def test_lengths_follow_the_size_of_a_padded_batch() -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            longest = lengths.max().item()
            return x.masked_fill(torch.arange(longest) >= lengths[:, None], 0.0)

    batch, length = Dim("batch"), Dim("length")
    args = torch.randn(2, 6), torch.tensor([6, 3])
    item = captured(Masked(), args, ({0: batch, 1: length}, {0: batch}))
    engine = Recording()
    verify(CapturedReference(item), engine, engine="none")
    assert len({feeds["x"].shape[1] for feeds in engine.fed}) >= 3
    assert all(feeds["lengths"].max() == feeds["x"].shape[1] for feeds in engine.fed)


def test_a_batch_of_two_gets_two_other_sizes_in_every_dimension() -> None:
    shapes = ({0: Dim("h"), 1: Dim("n")},)
    item = captured(Function(lambda x: x + 1), (torch.randn(24, 2),), shapes)
    cases = verify(CapturedReference(item), Recording(), engine="none").cases
    for name in cases[0].sizes:
        assert len({case.sizes[name] for case in cases}) >= 3


def test_sizes_that_pytorch_refuses_are_reported() -> None:
    class Picky(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._check(x.shape[0] % 4 == 0)
            return x + 1

    item = captured(Picky(), (torch.randn(8, 3),), ({0: Dim.AUTO},))
    found = verify(CapturedReference(item), Recording(), engine="none")
    assert all(size % 4 == 0 for case in found.cases for size in case.sizes.values())
    assert len(found.cases) == 3
    assert any("PyTorch refuses" in note for case in found.cases for note in case.notes)


def test_each_dimension_moves_alone_and_with_its_own_step() -> None:
    class Strided(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._check(x.shape[1] % 32 == 0)
            return x + 1

    item = captured(Strided(), (torch.randn(4, 64, 7),), (dict.fromkeys(range(3), Dim.AUTO),))
    engine = Recording()
    verify(CapturedReference(item), engine, engine="none")
    shapes = [next(iter(feeds.values())).shape for feeds in engine.fed]
    alone = {(5, 64, 7), (4, 96, 7), (4, 64, 8)}
    assert (shapes[0], set(shapes[1:4]), shapes[4:]) == ((4, 64, 7), alone, [(6, 128, 9), (3, 32, 6)])


@pytest.mark.slow
def test_a_dimension_of_which_pytorch_accepts_one_size_is_not_verified() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling() and x.shape[0] != 4:
                raise ValueError("four rows only")
            return x.sum() + y

    item = captured(Fixed(), (torch.randn(4, 3), torch.randn(5)), ({0: Dim("rows")}, {0: Dim("n")}))
    found = verify(CapturedReference(item), session(onnx_model(item)), engine="onnxruntime")
    assert found.verdict == "not verified"
    assert re.match(
        r"No other size of the dynamic dimension s\d+ could be verified: PyTorch refuses ", found.error or ""
    )
    assert "four rows only" in (found.error or "")
    assert [case.verdict for case in found.cases] == ["passed", "passed", "not verified"]


@pytest.mark.slow
def test_a_size_that_pytorch_accepts_and_the_captured_program_does_not_is_a_failure() -> None:
    item = captured(Function(lambda x: x.index_select(0, torch.tensor([3]))), (torch.randn(4, 3),), ({0: Dim("n")},))
    other = dataclasses.replace(item, module=Function(lambda x: x[3:4]))
    found = verify(CapturedReference(other), session(onnx_model(item)), engine="onnxruntime")
    assert [case.verdict for case in found.cases] == ["passed", "passed", "failed"]
    assert re.match(r"PyTorch accepts s\d+=3, but the captured program does not: ", found.error or "")


def test_numbers_that_pytorch_accepts_and_the_captured_program_does_not_are_a_failure() -> None:
    x = torch.randn(4, 3)
    item = captured(Function(lambda y: y.index_select(0, 3 + (y != x).any().long().reshape(1))), (x,))
    other = dataclasses.replace(item, module=Function(lambda y: y[3:4]))
    found = verify(CapturedReference(other), session(onnx_model(item)), engine="onnxruntime")
    assert found.verdict == "failed"
    assert (found.error or "").startswith("PyTorch accepts fresh inputs, but the captured program does not: ")


@pytest.mark.slow
def test_a_rank_that_a_size_of_one_changes_is_named(tmp_path: Path) -> None:
    """PyTorch's result has rank 1 for one column."""
    model, shapes = Function(lambda x: x.squeeze(1)), (({1: Dim("n", min=1, max=9)},),)
    bundle = opbridge.export(model, (torch.randn(2, 3),), path=tmp_path / "bundle", dynamic_shapes=shapes, bisect=False)
    assert bundle.verification is not None
    (comparison,) = [one for one in bundle.verification["comparisons"] if one["status"] == "shape"]
    assert comparison["detail"].endswith("exclude it with torch.export.Dim(name, min=2)")


@pytest.mark.slow
def test_a_guard_that_excludes_the_example_and_makes_no_difference() -> None:
    model = Function(lambda x: x * 2 if x.shape[0] == 1 else x + x)
    item = captured(model, (torch.randn(2, 3),), ({0: Dim("n")},))
    one = dataclasses.replace(item, args=(torch.randn(1, 3),))
    found = verify(CapturedReference(one), session(onnx_model(item)), engine="onnxruntime")
    assert found.passed, found.summary()
    assert next(iter(found.cases[0].sizes.values())) == 1


def test_sizes_that_are_even_in_the_example_are_once_odd_together() -> None:
    """A kernel that takes two elements at a time may lose the last of an odd number."""
    rows, columns = Dim("rows", min=2), Dim("columns", min=2)
    item = captured(Function(lambda x: x + 1), (torch.randn(4, 6),), ({0: rows, 1: columns},))
    cases = CapturedReference(item).cases(VerifyOptions(), VerifyOptions().journal.of_engine(""))
    shapes = [case.feeds["args_0"].shape for case in cases]
    assert any(all(size % 2 for size in shape) for shape in shapes), shapes


def test_dimension_without_another_size_is_noted() -> None:
    item = captured(Function(lambda x: x + 1), (torch.randn(3, 3),), ({0: Dim("n", min=3, max=4)},))
    found = verify(CapturedReference(item), Recording(), engine="none")
    assert len(found.cases) == 2
    assert "not all sizes of the dynamic dimensions could be tried" in found.cases[0].notes[0]


def test_indices_come_from_the_whole_table_and_reach_its_ends() -> None:
    def forward(tokens: torch.Tensor, rows: torch.Tensor, kinds: torch.Tensor, other: torch.Tensor) -> Any:
        table = torch.ones(300, 4)
        looked_up = torch.nn.functional.embedding(tokens.reshape(-1), table)
        return looked_up, table.index_select(0, rows), torch.nn.functional.one_hot(kinds, 7), other * 2

    args = [torch.tensor([[1, 2, 3, 4]]), torch.tensor([1, 0, 2]), torch.tensor([1, 0, 2]), torch.tensor([1, 0, 2])]
    specs = InputSpecs(captured(Function(forward), tuple(args)))
    tokens, rows, kinds, other = specs.fresh({}, 0, WIDE_RANGE)
    assert (int(tokens.max()), int(tokens.min())) == (299, 0)
    assert (int(rows.max()), int(kinds.max())) == (299, 6)
    assert int(other.max()) <= 2
    assert int(specs.fresh({}, 0, EXAMPLE_RANGE)[0].max()) <= 4


ROI = torch.cat([torch.tensor([[0.0], [1.0], [2.0], [0.0]]), torch.tensor([[1.0, 2.0, 5.0, 6.0]]).repeat(4, 1)], 1)


class Bags(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = torch.nn.EmbeddingBag(10, 4, mode="max")

    def forward(self, words: torch.Tensor, starts: torch.Tensor) -> Any:
        return self.bags(words, starts)


def test_the_offsets_of_bags_begin_at_zero_and_ascend() -> None:
    """PyTorch computes something, and not the same each time, for offsets that do not ascend."""
    shapes = {"words": {0: torch.export.Dim("n")}, "starts": {0: torch.export.Dim("bags")}}
    specs = InputSpecs(captured(Bags(), (torch.arange(7), torch.tensor([0, 5])), dynamic_shapes=shapes))
    for seed in range(8):
        words, starts = specs.fresh(dict(zip(specs.sizes.base, (9, 4), strict=True)), seed, WIDE_RANGE)
        assert starts[0] == 0
        assert bool((starts.diff() >= 0).all())
        assert starts[-1] < len(words)


def _numbers_in_rows(images: torch.Tensor, rois: torch.Tensor, ids: torch.Tensor) -> Any:
    from torchvision.ops import roi_align

    return roi_align(images, rois, 2)


def _numbers_in_a_branch(images: torch.Tensor, rois: torch.Tensor, ids: torch.Tensor) -> Any:
    def aligned(images: torch.Tensor, rois: torch.Tensor) -> Any:
        return torch.ops.torchvision.roi_align(images, rois[1:].clone(), 1.0, 2, 2, -1, False)

    def doubled(images: torch.Tensor, rois: torch.Tensor) -> Any:
        return 2 * aligned(images, rois)

    return torch.cond(rois.sum() > 0, aligned, doubled, (images, rois))


def _numbers_apart(images: torch.Tensor, rois: torch.Tensor, ids: torch.Tensor) -> Any:
    from torchvision.ops import roi_pool

    moved = torch.cat([ids.to(rois.dtype)[:, None], rois[:, 1:] + 1], dim=1)
    return roi_pool(images, torch.cat([moved, moved[1:]]), 2)


def _numbers_cut_out(images: torch.Tensor, rois: torch.Tensor, ids: torch.Tensor) -> Any:
    from torchvision.ops import ps_roi_align

    numbers, corners = rois.split([1, 4], 1)
    flat = rois[:, 0].reshape(-1, 1).clone()
    rows = torch.cat([torch.cat([numbers, corners], -1), torch.cat([flat, corners * 0.5], -1)])
    return ps_roi_align(images, rows[1:], 2)


@pytest.mark.parametrize(
    ("function", "of_rows", "of_ids"),
    [
        (_numbers_in_rows, {0}, set()),
        (_numbers_apart, set(), {None}),
        (_numbers_cut_out, {0}, set()),
        (_numbers_in_a_branch, {0}, set()),
    ],
)
def test_numbers_of_images_among_floats_stay_in_the_batch(function: Any, of_rows: set[Any], of_ids: set[Any]) -> None:
    pytest.importorskip("torchvision")
    batch = Dim("batch", min=2)
    args = (torch.randn(3, 8, 9, 9), ROI, torch.tensor([0, 2, 1, 0]))
    specs = InputSpecs(captured(Function(function), args, ({0: batch}, {}, {})))
    assert [set(item.columns) for item in specs.inputs] == [set(), of_rows, of_ids]
    for size in (2, 5):
        inputs = specs.fresh({next(iter(specs.sizes.base)): size}, 0, WIDE_RANGE)
        # Boxes that operators do not check would read memory elsewhere.
        _, rois, ids = specs.with_indices_of(inputs, [-value for value in inputs])
        numbers = rois[:, 0] if of_rows else ids
        _, rois, _ = inputs
        assert (int(numbers.min()), int(numbers.max())) == (0, size - 1)
        assert bool((numbers == numbers.round()).all())
        if of_rows:
            assert bool((rois[:, 3:] >= rois[:, 1:3]).all())


BOXES = torch.tensor([[0, 0, 9, 2], [7, 1, 9, 9], [1, 6, 3, 8]])


def test_rows_of_the_example_are_repeated() -> None:
    found = fresh_tensor(BOXES, (5, 4), np.random.default_rng(0), EXAMPLE_ROWS)
    assert found.tolist() == BOXES[[1, 2, 0, 1, 2]].tolist()


@pytest.mark.sweep
def test_a_model_that_takes_only_whole_boxes_is_verified_at_other_sizes(tmp_path: Path) -> None:
    def crops(image: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        rows = []
        for box in boxes:
            left, top, right, bottom = [int(edge) for edge in box]
            rows.append(torch.nn.functional.interpolate(image[:, :, top:bottom, left:right], size=(4, 4)))
        return torch.cat(rows)

    args = (torch.rand(1, 1, 9, 9), BOXES)
    bundle = opbridge.export(crops, args, path=tmp_path / "bundle", dynamic_shapes=({}, {0: Dim("n")}))
    assert bundle.verified


def test_a_fault_in_the_last_row_of_a_table_shows() -> None:
    class LastRowWrong:
        def run(self, feeds: Any) -> Any:
            table = np.arange(1000, dtype=np.float32)
            table[-1] = 0
            return {"out_0": table[feeds["args_0"]]}

    table = torch.arange(1000.0)
    item = captured(Function(lambda tokens: table[tokens]), (torch.randint(0, 50, (16,)),))
    assert not verify(CapturedReference(item), LastRowWrong(), engine="faulty").passed
    tame = {"args_0": np.arange(16)}
    assert verify(CapturedReference(item), LastRowWrong(), engine="faulty", options=VerifyOptions(inputs=[tame])).passed


def test_indices_that_differ_stay_different() -> None:
    made = fresh_tensor(torch.tensor([3, 0, 7, 5]), (9,), np.random.default_rng(0), WIDE_RANGE, 12)
    assert sorted(made.tolist()) == sorted(set(made.tolist()))
    assert {0, 11} <= set(made.tolist())
    assert len(fresh_tensor(torch.tensor([3, 0, 7, 5]), (20,), np.random.default_rng(0), WIDE_RANGE, 12)) == 20


def test_a_table_that_grows_with_the_input_and_other_uses_are_no_bound() -> None:
    def forward(indices: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x[indices] + indices.unsqueeze(-1)

    n = Dim("n", min=4)
    item = captured(Function(forward), (torch.tensor([1, 0, 2]), torch.randn(9, 2)), ({}, {0: n}))
    assert InputSpecs(item).inputs[0].rows is None


def test_images_fill_the_range_of_their_type() -> None:
    dark = torch.randint(0, 60, (2, 3, 16, 16)).to(torch.uint8)
    made = fresh(dark)
    assert (int(made.min()), int(made.max())) == (0, 255)
    last = fresh(torch.rand(16, 16, 3) * 0.7)
    assert (float(last.min()), float(last.max())) == (0.0, 1.0)
    counts = torch.randint(0, 60, (4, 9)).to(torch.uint8)
    assert int(fresh(counts).max()) <= int(counts.max())
    normalised = torch.randn(1, 3, 32, 32)
    assert float(fresh(normalised).min()) < -1


@pytest.mark.parametrize("low", [-torch.inf, -1e9, torch.finfo(torch.float32).min])
def test_a_mask_that_is_added_keeps_a_zero_in_every_row(low: float) -> None:
    mask = torch.zeros(1, 1, 12, 12).masked_fill(torch.rand(1, 1, 12, 12) < 0.9, low)
    mask[..., 0] = 0
    made = fresh(mask, (2, 1, 30, 7))
    assert set(made.unique().tolist()) == {low, 0.0}
    assert (made == 0).any(-1).all()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 4), (3, 1)])
@pytest.mark.parametrize("scale", [WIDE_RANGE, EXAMPLE_RANGE, EXAMPLE_VALUES])
def test_every_kind_of_example_can_be_made_empty_or_single(shape: tuple[int, int], scale: int) -> None:
    torch.manual_seed(0)
    examples = [
        *(torch.randn(3, 4), torch.rand(3, 4) < 0.5, torch.arange(12).reshape(3, 4), torch.randn(3, 4).bfloat16()),
        *(torch.randn(3, 4).masked_fill(torch.rand(3, 4) < 0.3, -torch.inf), torch.randn(3, 4).softmax(-1)),
        *(torch.tensor([[0, 0, 1.0, 1], [0, 0, 2, 3]]), torch.tensor([[5.0, 2, 9, 3], [1, 4, 2, 8]])),
        *(torch.rand(3, 4).sort(-1).values, torch.where(torch.rand(3, 4) < 0.5, 0.0, -1e9)),
    ]
    for example in examples:
        made = fresh_tensor(example, shape, np.random.default_rng(0), scale, 20)
        assert (made.shape, made.dtype) == (shape, example.dtype)


def test_arrays_of_types_that_numpy_stores_as_bytes_are_taken() -> None:
    item = captured(Function(lambda x: x * 2), (torch.ones(3, dtype=torch.bfloat16),))
    stored = to_numpy(torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)).view("V2")
    flat, _ = InputSpecs(item).given({"args_0": stored})
    assert flat[0].tolist() == [1, 2, 4]
