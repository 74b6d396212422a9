"""Capturing: names of inputs, outputs and dimensions, and every form a model and its inputs may take."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from roundtrip import Trip, travel
from torch import Tensor, nn
from torch.export import Dim
from verify_models import Function

import opbridge
from opbridge.capture.capture import capture, load_program
from opbridge.errors import CaptureError, InputError


def io(trip: Trip) -> tuple[list[str], list[str]]:
    return [value.name for value in trip.proto.graph.input], [value.name for value in trip.proto.graph.output]


def dimensions(trip: Trip) -> list[list[str | int]]:
    return [
        [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in (*trip.proto.graph.input, *trip.proto.graph.output)
    ]


def test_names_come_from_parameters_and_keys() -> None:
    def model(image: Tensor, boxes: list[Tensor]) -> dict[str, Tensor]:
        return {"scores": image + 1, "labels": (boxes[0] > 0), "image": boxes[1] * 2}

    trip = travel(model, (torch.randn(3), [torch.randn(3), torch.randn(3)]))
    assert io(trip) == (["image", "boxes_0", "boxes_1"], ["scores", "labels", "image_out"])
    trip.check(torch.randn(3), [torch.randn(3), torch.randn(3)])


def test_names_of_the_user() -> None:
    trip = travel(
        lambda a, b: (a + b, a * b),
        (torch.randn(3), torch.randn(3)),
        input_names=["left", "add"],
        output_names=["mul", "a"],
    )
    assert io(trip) == (["left", "add"], ["mul", "a"])
    trip.check(torch.randn(3), torch.randn(3))


def test_names_that_inner_values_and_weights_have_already() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    names = [value.name for value in travel(model, (torch.randn(2, 3),)).proto.graph.initializer]
    trip = travel(model, (torch.randn(2, 3),), input_names=[names[0]], output_names=["relu"])
    assert io(trip) == ([names[0]], ["relu"])
    trip.check(torch.randn(2, 3))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"input_names": ["a"]}, "input_names has 1 names, but the model has 2 inputs: a, b"),
        ({"input_names": ["x", "x"]}, "input_names: 'x' appears twice"),
        ({"output_names": ["p", "q", "r"]}, "output_names has 3 names, but the model has 1 outputs: output"),
        ({"output_names": ["a"]}, "output_names: 'a' is the name of an input as well"),
        ({"input_names": ["x", "y"], "output_names": ["y"]}, "output_names: 'y' is the name of an input as well"),
    ],
)
def test_names_that_do_not_fit(names: dict[str, Any], message: str) -> None:
    def model(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    with pytest.raises(InputError) as caught:
        capture(model, (torch.randn(3), torch.randn(3)), **names)
    assert message in caught.value.message
    assert caught.value.fix


@pytest.mark.parametrize("dimension", ["rows", Dim("rows"), Dim("rows", min=2, max=64)], ids=["string", "Dim", "range"])
def test_a_dynamic_dimension_keeps_its_name(dimension: Any) -> None:
    trip = travel(
        lambda x, y: torch.cat([x, y]),
        (torch.randn(3, 4), torch.randn(2, 4)),
        dynamic_shapes={"x": {0: dimension}, "y": None},
    )
    assert dimensions(trip) == [["rows", 4], [2, 4], ["rows + 2", 4]]
    trip.check(torch.randn(3, 4), torch.randn(2, 4))
    trip.check(torch.randn(9, 4), torch.randn(2, 4))


@pytest.mark.parametrize("dimension", [Dim.DYNAMIC, Dim.AUTO], ids=["DYNAMIC", "AUTO"])
def test_a_dynamic_dimension_without_a_name(dimension: Any) -> None:
    trip = travel(lambda x: x + 1, (torch.randn(3, 4),), dynamic_shapes={"x": {0: dimension}})
    ((first, second), (out, _)) = dimensions(trip)
    assert isinstance(first, str)
    assert (first, second) == (out, 4)
    trip.check(torch.randn(7, 4))


@pytest.mark.parametrize(
    "shapes",
    [({0: "rows"}, {0: "rows"}), (("rows", None), ["rows", None]), {"y": {0: "rows"}, "x": {0: "rows"}}],
    ids=["axes", "sequences", "by name in another order"],
)
def test_one_name_for_two_inputs_of_one_size(shapes: Any) -> None:
    trip = travel(lambda x, y: x + y, (torch.randn(3, 4), torch.randn(3, 4)), dynamic_shapes=shapes)
    assert dimensions(trip) == [["rows", 4]] * 3
    trip.check(torch.randn(5, 4), torch.randn(5, 4))


def test_a_derived_dimension_has_the_users_name() -> None:
    h, w = Dim("h"), Dim("w")
    model = Function(lambda x, y: (x + 1, y + 1))
    captured = capture(
        model, (torch.randn(8, 5), torch.randn(2, 6)), dynamic_shapes=({0: 4 * h, 1: w}, {0: h, 1: w + 1})
    )
    assert set(captured.dimension_names.values()) == {"h", "w"}


@pytest.mark.slow
def test_a_derived_dimension_that_torch_keeps_apart_is_its_expression(tmp_path: Path) -> None:
    """The number of samples of a vocoder, for a number of frames: torch does not conclude 6 n - 12 from the cat."""

    class Vocoder(torch.nn.Module):
        def forward(self, wave: torch.Tensor, spectrum: torch.Tensor) -> torch.Tensor:
            upsampled = torch.nn.functional.avg_pool1d(spectrum, 3, 1).repeat_interleave(6, 2)
            return torch.cat([wave, upsampled], 1)

    frames = Dim("frames", min=5, max=100)
    shapes = ({0: "batch", 2: 6 * frames - 12}, {0: "batch", 2: frames})
    args = torch.rand(2, 1, 48), torch.rand(2, 4, 10)
    assert "6*frames - 12" in capture(Vocoder(), args, dynamic_shapes=shapes).dimension_names.values()
    assert opbridge.export(Vocoder(), args, dynamic_shapes=shapes, path=tmp_path / "bundle").verified


def test_a_program_that_returns_a_float_of_data_is_refused(tmp_path: Path) -> None:
    program = torch.export.export(Function(lambda x: (x + 1, x.sum().item())), (torch.ones(3),))
    with pytest.raises(InputError, match="returns a float or a bool that depends on data"):
        opbridge.export(program, path=tmp_path / "bundle")


class AttendsToMany(torch.nn.Module):
    """torch's attention distinguishes a batch of 1."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            return x + y[0] * 2
        return self.attention(x, y[: x.shape[0]], y[: x.shape[0]])[0]


@pytest.mark.quick(every=2)
@pytest.mark.parametrize(
    "shapes",
    [
        ({0: Dim("n")}, {0: 2 * Dim("n")}),
        ({0: Dim("n", max=9)}, {0: 2 * Dim("n", max=9)}),
        ({0: Dim("n"), 1: Dim("t")}, {0: 2 * Dim("n") + 0, 1: Dim("s")}),
    ],
)
def test_a_model_that_distinguishes_the_size_1_is_captured_for_the_sizes_from_2(shapes: Any) -> None:
    captured = capture(AttendsToMany().eval(), (torch.randn(3, 5, 4), torch.randn(6, 5, 4)), dynamic_shapes=shapes)
    size = captured.program.module()(torch.randn(7, 5, 4), torch.randn(14, 5, 4)).shape[0]
    assert size == 7
    assert {"n"} <= set(captured.dimension_names.values())


@pytest.mark.sweep
def test_a_declared_minimum_of_1_is_kept() -> None:
    shapes = ({0: Dim("n", min=1)}, {0: 2 * Dim("n", min=1)})
    model = AttendsToMany().eval()
    program = capture(model, (torch.randn(3, 5, 4), torch.randn(6, 5, 4)), dynamic_shapes=shapes).program.module()
    for size in (1, 2, 7):
        inputs = torch.randn(size, 5, 4), torch.randn(2 * size, 5, 4)
        torch.testing.assert_close(program(*inputs), model(*inputs))


def test_names_by_parameter_in_another_order() -> None:
    trip = travel(
        lambda x, y: (x * 2, y * 2),
        (torch.randn(3, 4), torch.randn(5, 4)),
        dynamic_shapes={"y": {0: "many"}, "x": {0: "few"}},
    )
    assert dimensions(trip) == [["few", 4], ["many", 4]] * 2


class Variadic(nn.Module):
    """As the wrappers of adapters are declared."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        total = sum(args, torch.zeros(()))
        return total * kwargs.get("mask", 1)


ROWS = {0: "rows"}


@pytest.mark.parametrize(
    ("count", "shapes"),
    [
        (2, {"args_0": ROWS, "args_1": ROWS, "mask": ROWS}),
        (2, {"args": (ROWS, ROWS), "kwargs": {"mask": ROWS}}),
        (1, {"args_0": ROWS, "mask": ROWS}),
    ],
    ids=["by name", "as torch.export groups them", "one"],
)
def test_dynamic_dimensions_of_args_and_kwargs(count: int, shapes: Any) -> None:
    positional = tuple(torch.randn(3, 4) for _ in range(count))
    captured = capture(Variadic(), positional, {"mask": torch.randn(3, 4)}, dynamic_shapes=shapes)
    assert captured.input_names == (*(f"args_{position}" for position in range(count)), "mask")
    assert list(captured.dimension_names.values()) == ["rows"]
    captured.program.run_decompositions({})
    assert captured.program.module()(*(torch.ones(7, 4),) * count, mask=torch.ones(7, 4)).shape == (7, 4)


@pytest.mark.parametrize("shapes", [(ROWS, ROWS), ((ROWS, ROWS),)], ids=["one each", "as torch.export groups them"])
def test_dynamic_dimensions_of_args_by_position(shapes: Any) -> None:
    captured = capture(Variadic(), (torch.randn(3, 4), torch.randn(3, 4)), dynamic_shapes=shapes)
    assert list(captured.dimension_names.values()) == ["rows"]


def test_dynamic_dimensions_of_a_list_in_args() -> None:
    class Sum(nn.Module):
        def forward(self, *args: Any) -> Tensor:
            return args[0] + args[1][0] + args[1][1]

    args = torch.randn(3, 4), [torch.randn(3, 4), torch.randn(4)]
    captured = capture(Sum(), args, dynamic_shapes=(ROWS, [ROWS, {}]))
    assert list(captured.dimension_names.values()) == ["rows"]


def test_an_input_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match=r"\['args_0', 'mask'\]"):
        capture(Variadic(), (torch.ones(2),), {"mask": torch.ones(2)}, dynamic_shapes={"input": ROWS})


def test_one_name_for_two_sizes_that_are_independent() -> None:
    """An ONNX name says that two sizes are equal: the second gets another, and the rest keep theirs."""
    trip = travel(
        lambda x, y, z: (x * 2, y * 2, z * 2),
        (torch.randn(3, 4), torch.randn(5, 4), torch.randn(6)),
        dynamic_shapes=({0: "rows"}, {0: "rows"}, {0: "other"}),
    )
    assert dimensions(trip) == [["rows", 4], ["rows_1", 4], ["other"]] * 2
    trip.check(torch.randn(2, 4), torch.randn(7, 4), torch.randn(2))


def test_one_name_for_two_sizes_that_are_equal_in_the_example() -> None:
    """The user says that they are equal, though the model would take others."""
    trip = travel(
        lambda x, y: (x * 2, y.sum(0)),
        (torch.randn(3, 4), torch.randn(3, 4)),
        dynamic_shapes=({0: "rows"}, {0: "rows"}),
    )
    assert dimensions(trip)[:2] == [["rows", 4], ["rows", 4]]


def test_nested_inputs_with_dynamic_dimensions() -> None:
    def model(batch: dict[str, Any], scale: float = 2.0, *, shift: Tensor) -> Tensor:
        return batch["x"] * scale + batch["pair"][0] + batch["pair"][1] + shift

    args = ({"x": torch.randn(3, 2), "pair": (torch.randn(3, 2), torch.randn(1, 2))},)
    trip = travel(
        model,
        args,
        {"shift": torch.randn(2)},
        dynamic_shapes={"batch": {"x": {0: "n"}, "pair": ({0: "n"}, None)}, "shift": None},
    )
    assert io(trip)[0] == ["batch_x", "batch_pair_0", "batch_pair_1", "shift"]
    assert dimensions(trip)[:3] == [["n", 2], ["n", 2], [1, 2]]


def test_a_plain_function_has_the_names_of_its_parameters() -> None:
    def swish(x: Tensor, beta: Tensor) -> Tensor:
        return x * torch.sigmoid(beta * x)

    captured = capture(swish, (torch.randn(3), torch.randn(3)), dynamic_shapes={"x": {0: "n"}, "beta": {0: "n"}})
    assert captured.input_names == ("x", "beta")
    assert captured.output_names == ("output",)
    assert set(captured.dimension_names.values()) == {"n"}


def test_a_single_tensor_is_one_input() -> None:
    assert capture(nn.ReLU(), torch.randn(3, 4)).input_names == ("input",)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU, "ReLU is a class: pass an instance of it"),
        (5, "pass an nn.Module, a function of tensors"),
    ],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    with pytest.raises(InputError, match="can't be captured") as caught:
        capture(model, (torch.randn(3),))
    assert message in caught.value.fix


def test_ints_and_none_are_no_inputs_unless_dynamic() -> None:
    def model(x: Tensor, n: int, mask: Tensor | None, y: Tensor) -> Tensor:
        return x * n + y if mask is None else x

    trip = travel(model, (torch.randn(3), 4, None, torch.randn(3)))
    assert io(trip)[0] == ["x", "y"]
    x, y = torch.randn(3), torch.randn(3)
    np.testing.assert_allclose(trip.run(x, y)[0], x * 4 + y, rtol=1e-6)


def test_a_dynamic_int_is_an_input() -> None:
    trip = travel(lambda x, n: x.repeat(n) + n, (torch.randn(3), 4), dynamic_shapes={"x": None, "n": Dim.DYNAMIC})
    (_, n) = trip.proto.graph.input
    assert (n.name, n.type.tensor_type.elem_type, len(n.type.tensor_type.shape.dim)) == ("n", 7, 0)
    trip.check(torch.randn(3), 2)
    trip.check(torch.randn(3), 6)


def test_odd_outputs() -> None:
    """The same tensor twice, an input, a constant, None and a number: what is no tensor is no output."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(3.0))

        def forward(self, x: Tensor) -> tuple[Any, ...]:
            y = x + 1
            return y, y, x, self.table, None, 5

    trip = travel(Model(), (torch.randn(3),))
    assert len(io(trip)[1]) == 4
    assert len({*io(trip)[0], *io(trip)[1]}) == 5
    trip.check(torch.randn(3))


@dataclasses.dataclass
class Result:
    scores: Tensor
    extra: Tensor | None = None


def test_an_input_that_is_not_used_stays() -> None:
    trip = travel(lambda x, unused: x + 1, (torch.randn(3), torch.randn(2)))
    assert io(trip)[0] == ["x", "unused"]


def test_a_captured_program() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, *, shift: Tensor) -> Tensor:
            return x + shift

    program = torch.export.export(
        Model(), (torch.randn(3, 4),), {"shift": torch.randn(4)}, dynamic_shapes={"x": {0: Dim("rows")}, "shift": None}
    )
    captured = capture(program, output_names=["sum"])
    assert captured.module is None
    assert captured.input_names == ("x", "shift")
    assert captured.output_names == ("sum",)
    assert captured.args[0].shape == (3, 4)
    assert set(captured.kwargs) == {"shift"}


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        load_program(tmp_path / "absent.pt2")
    (tmp_path / "broken.pt2").write_bytes(b"not a program")
    with pytest.raises(InputError, match="is not an exported program that this version of torch can read") as caught:
        load_program(tmp_path / "broken.pt2")
    assert "torch.export.save" in caught.value.fix


class Weighted(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.weight, x)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_weights_are_dense_in_the_model(layout: str) -> None:
    torch.manual_seed(0)
    weight = getattr(torch.randn(6, 4) * (torch.rand(6, 4) > 0.5), layout)()
    model = Weighted(weight)
    trip = travel(model, (torch.randn(4, 3),))
    trip.check(torch.randn(4, 3))
    assert model.weight.layout == weight.layout


def test_a_nested_tensor_is_refused_with_a_way_out() -> None:
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    with pytest.raises(InputError, match="different lengths") as caught:
        capture(lambda x: x + 1, (rows,))
    assert "to_padded_tensor" in str(caught.value.fix)


def test_a_model_in_training_mode_is_captured_for_inference() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9)).train()
    captured = capture(model, (torch.randn(2, 3),))
    assert captured.was_training
    x = torch.randn(2, 3)
    with torch.no_grad():
        assert torch.equal(captured.program.module()(x), model[0](x))
    assert model.training


@pytest.mark.slow
def test_a_model_that_can_not_be_captured_names_the_users_line() -> None:
    def model(x: Tensor) -> Tensor:
        return x * float(f"{x.sum():.2f}")

    with pytest.raises(CaptureError) as caught:
        capture(model, (torch.randn(3),))
    assert f"test_capture.py:{model.__code__.co_firstlineno + 1}" in caught.value.message
    assert len(caught.value.message.splitlines()) == 1
    assert "is_exporting" in caught.value.fix
    assert caught.value.details


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(InputError) as caught:
        capture(nn.Linear(3, 3), (torch.randn(2, 3), torch.randn(2)))
    assert "Linear" in caught.value.message or "forward" in caught.value.message


def test_a_lazy_module_without_parameters_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"'0\.weight' and 1 more of the model has no shape yet"):
        opbridge.export(nn.Sequential(nn.LazyLinear(3)), (torch.ones(2, 4),), path=tmp_path / "bundle")


def test_a_module_that_forward_is_the_first_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("import torch\nTABLE = torch.tensor([1.0, 2.0])\n")
    monkeypatch.syspath_prepend(tmp_path)

    def scaled(x):
        from imported_late import TABLE

        return x * TABLE if TABLE[1] == 2 else x

    finders = [*sys.meta_path]
    program = capture(scaled, (torch.ones(2),)).program
    assert sys.meta_path == finders
    assert torch.equal(program.module()(torch.ones(2)), torch.tensor([1.0, 2.0]))
    assert type(sys.modules.pop("imported_late").TABLE) is torch.Tensor
