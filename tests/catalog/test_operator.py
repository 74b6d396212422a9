"""An operator of the user's own: a torch operator, one node in ONNX, with a function body that ONNX Runtime runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Optional

import numpy as np
import pytest
import torch
from roundtrip import Trip, travel
from torch import Tensor

import opbridge
from opbridge.catalog.declare.fakes import check_fakes
from opbridge.catalog.declare.operator import Operator, find_operator
from opbridge.errors import CaptureError, InputError, TranslationError


@opbridge.operator("test_operator::twice_plus")
def twice_plus(a: Tensor, b: Tensor) -> Tensor:
    """Return 2a + b."""
    return 2 * a + b


@opbridge.operator("test_operator::scaled")
def scaled(
    x: Tensor, factor: float = 2.0, power: int = 1, mode: str = "plain", shifts: list[int] | None = None
) -> Tensor:
    """Return factor x^power, negated in mode "negative", plus the sum of the shifts."""
    y = factor * x**power
    y = -y if mode == "negative" else y
    return y + sum(shifts) if shifts else y


@opbridge.operator("test_operator::nested")
def nested(x: Tensor) -> Tensor:
    """Return 2x + x through another operator, plus x²."""
    return twice_plus(x, x) + scaled(x, 1.0, 2)


@opbridge.operator("test_operator::both")
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum over the last axis and its position."""
    values, indices = x.max(dim=-1)
    return values.clone(), indices.clone()


@opbridge.operator("test_operator::masked")
def masked(x: Tensor, mask: Optional[Tensor], bias: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
    """Return x where the mask is True, plus the bias; an absent one does nothing."""
    y = x.clone() if mask is None else torch.where(mask, x, 0.0)
    return y if bias is None else y + bias


@opbridge.operator("test_operator::total")
def total(parts: list[Tensor], weight: float) -> Tensor:
    """Return the weighted sum of the parts."""
    result = parts[0] * weight
    for part in parts[1:]:
        result = result + part * weight
    return result


@opbridge.operator("test_operator::padded")
def padded(x: Tensor, amount: int) -> Tensor:
    """Return x plus amount, a row of zeros added."""
    return torch.nn.functional.pad(x, (0, 0, 0, 1)) + amount


@opbridge.operator("test_operator::by_size")
def by_size(x: Tensor) -> Tensor:
    """Return a sum unrolled over the rows, so that a body serves one size only."""
    result = x[0]
    for row in range(1, int(x.shape[0])):
        result = result + x[row] * row
    return result


def numpy_sort(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sort(x.numpy(), axis=-1))


opaque = opbridge.operator("test_operator::opaque")


def with_numpy(x: Tensor) -> Tensor:
    """Sort with NumPy, which can be neither traced nor differentiated."""
    return numpy_sort(x)


opaque = opaque(with_numpy)


@opaque.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@opaque.set_body
def _(x: Tensor) -> Tensor:
    return torch.sort(x, dim=-1)[0]


def custom_nodes(trip: Trip) -> list[str]:
    return [name for name in trip.op_types if name.startswith("test_operator::")]


def overloads(trip: Trip) -> list[tuple[str, str]]:
    return [(function.name, function.overload) for function in trip.proto.functions]


def test_one_node_with_a_body() -> None:
    trip = travel(lambda a, b: torch.relu(twice_plus(a, b)), (torch.randn(3, 4), torch.randn(3, 4)))
    assert trip.op_types == ["test_operator::twice_plus", "Relu"]
    assert trip.rung("test_operator::twice_plus") == "function"
    (function,) = trip.proto.functions
    assert (function.domain, function.name, function.overload) == ("test_operator", "twice_plus", "")
    assert list(function.input) == ["a", "b"]
    assert {entry.domain: entry.version for entry in function.opset_import}[""] == trip.climbed.opset
    trip.check(torch.randn(3, 4), torch.randn(3, 4))


@pytest.fixture(scope="module")
def variants() -> Trip:
    """One operator with two dtypes, two ranks and several attributes."""

    def model(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (
            scaled(x),
            scaled(x, 3.0, 2),
            scaled(x, mode="negative", shifts=[1, 2]),
            scaled(y),
            scaled(z),
            scaled(torch.exp(x)),
        )

    return travel(model, (torch.randn(3, 4), torch.randn(2, 3, 4), torch.randn(3, 4, dtype=torch.float64)))


def test_dtypes_ranks_and_attributes_are_overloads(variants: Trip) -> None:
    assert custom_nodes(variants) == ["test_operator::scaled"] * 6
    names = [name for _, name in overloads(variants)]
    assert len(set(names)) == 5, "the first and the last call share a body"
    assert {"float64_2d", "float32_3d"} <= set(names)
    used = [node.overload for node in variants.proto.graph.node if node.domain == "test_operator"]
    assert set(used) == set(names)
    assert variants.proto.ir_version == 10


@pytest.mark.slow
def test_attributes_are_on_the_node_defaults_included(variants: Trip) -> None:
    found = []
    for node in variants.proto.graph.node:
        attributes = {item.name: item for item in node.attribute}
        if "shifts" in attributes:
            found.append((attributes["mode"].s, list(attributes["shifts"].ints), attributes["factor"].f))
            assert attributes["power"].i == 1
    assert found == [(b"negative", [1, 2], 2.0)]


def test_overloads_compute_the_same(variants: Trip) -> None:
    variants.check(torch.randn(3, 4), torch.randn(2, 3, 4), torch.randn(3, 4, dtype=torch.float64))


@pytest.mark.slow
def test_older_ir_versions_get_mangled_names() -> None:
    trip = travel(lambda x, y: (scaled(x), scaled(y)), (torch.randn(3, 4), torch.randn(2, 3, 4)), ir_version=9)
    assert trip.proto.ir_version == 9
    assert sorted(overloads(trip)) == [("scaled__float32_2d", ""), ("scaled__float32_3d", "")]
    assert sorted(custom_nodes(trip)) == ["test_operator::scaled__float32_2d", "test_operator::scaled__float32_3d"]
    trip.check(torch.randn(3, 4), torch.randn(2, 3, 4))


def test_operators_in_operators() -> None:
    trip = travel(lambda x: nested(x) - scaled(x, 5.0), (torch.randn(3, 4),))
    assert sorted(custom_nodes(trip)) == ["test_operator::nested", "test_operator::scaled"]
    body = next(f for f in trip.proto.functions if f.name == "nested")
    called = sorted((node.op_type, node.overload) for node in body.node if node.domain)
    assert called == [("scaled__float32_2d_2", ""), ("twice_plus", "")], "no engine finds an overload from a body"
    trip.check(torch.randn(3, 4))


@pytest.mark.slow
def test_two_uses_with_different_attributes_one_inside_another_operator() -> None:
    """The body inside ``nested`` and the one in the graph are of one name, and must not be taken for each other."""
    trip = travel(
        lambda x: nested(x) - scaled(x, 5.0, 3, "negative") + nested(x[0]) - scaled(x, 1.0, 2), (torch.randn(3, 4),)
    )
    trip.check(torch.randn(3, 4))


def test_several_outputs_one_of_them_unused() -> None:
    trip = travel(lambda x, y: (*both(x), both(y)[1]), (torch.randn(3, 4), torch.randn(2, 3, 4)))
    trip.check(torch.randn(3, 4), torch.randn(2, 3, 4))


@pytest.mark.slow
def test_optional_tensors_present_and_absent() -> None:
    def model(x: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return masked(x, None), masked(x, mask), masked(x, None, bias), masked(x, mask, bias)

    example = (torch.randn(3, 4), torch.rand(3, 4) > 0.5, torch.randn(4))
    trip = travel(model, example)
    inputs = [list(node.input) for node in trip.proto.graph.node if node.op_type == "masked"]
    assert inputs == [["x"], ["x", "mask"], ["x", "", "bias"], ["x", "mask", "bias"]]
    trip.check(torch.randn(3, 4), torch.rand(3, 4) > 0.5, torch.randn(4))


def test_a_list_of_tensors() -> None:
    trip = travel(
        lambda a, b, c: (total([a, b, c], 0.5), total([a, b], 2.0)), tuple(torch.randn(2, 3) for _ in range(3))
    )
    inputs = [list(node.input) for node in trip.proto.graph.node if node.op_type == "total"]
    assert inputs == [["a", "b", "c"], ["a", "b"]]
    trip.check(*(torch.randn(2, 3) for _ in range(3)))


@pytest.mark.slow
def test_a_dynamic_int_is_an_input_of_the_node() -> None:
    trip = travel(
        lambda x: padded(x, x.shape[0]), (torch.randn(3, 4),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}}
    )
    (node,) = [node for node in trip.proto.graph.node if node.op_type == "padded"]
    assert len(node.input) == 2
    assert not [item for item in node.attribute if item.name == "amount"]
    trip.check(torch.randn(3, 4))
    trip.check(torch.randn(7, 4))


@pytest.mark.slow
def test_inside_a_branch() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: twice_plus(x, x), lambda x: scaled(x, 3.0), (x,))

    trip = travel(model, (torch.randn(3, 4),))
    assert "If" in trip.op_types
    assert {name for name, _ in overloads(trip)} == {"twice_plus", "scaled"}
    trip.check(torch.rand(3, 4) + 1)
    trip.check(-torch.rand(3, 4) - 1)


@pytest.mark.slow
def test_inside_a_loop() -> None:
    def model(x: Tensor, n: Tensor) -> Tensor:
        zero = torch.zeros_like(n)
        return torch.while_loop(
            lambda i, n, x: i < n, lambda i, n, x: (i + 1, n.clone(), scaled(x, 0.5)), (zero, n, x)
        )[2]

    trip = travel(model, (torch.randn(3), torch.tensor(2)))
    assert "Loop" in trip.op_types
    trip.check(torch.randn(3), torch.tensor(0))
    trip.check(torch.randn(3), torch.tensor(5))


def test_a_body_that_fits_one_size_is_made_for_each_size() -> None:
    trip = travel(lambda x, y: (by_size(x), by_size(y)), (torch.randn(3, 4), torch.randn(5, 4)))
    assert len(trip.proto.functions) == 2
    trip.check(torch.randn(3, 4), torch.randn(5, 4))


def test_a_body_that_serves_any_size_is_shared() -> None:
    trip = travel(lambda x, y: (scaled(x), scaled(y)), (torch.randn(3, 4), torch.randn(5, 6)))
    assert len(trip.proto.functions) == 1
    trip.check(torch.randn(3, 4), torch.randn(5, 6))


def test_sizes_of_one_broadcast() -> None:
    trip = travel(
        lambda x, y, z: (twice_plus(x, y), twice_plus(y, x), twice_plus(x, z)),
        (torch.randn(3, 4), torch.randn(1, 4), torch.randn(3, 4)),
    )
    trip.check(torch.randn(3, 4), torch.randn(1, 4), torch.randn(3, 4))


@opbridge.operator("test_operator::parity")
def parity(x: Tensor) -> Tensor:
    """Return x grown if the number of its rows is even or over 4, else shrunk: a body holds for some sizes only."""
    if x.shape[0] > 4:
        return x * 3
    return x + 1 if x.shape[0] % 2 == 0 else x - 1


def test_bodies_that_hold_for_some_sizes_only() -> None:
    sizes = [2, 3, 4, 5, 6]
    trip = travel(lambda *xs: tuple(parity(x) for x in xs), tuple(torch.randn(n, 3) for n in sizes))
    trip.check(*(torch.randn(n, 3) for n in sizes))


def test_a_body_that_needs_one_size_of_a_dynamic_dimension_is_refused() -> None:
    @opbridge.operator("test_operator::any_rows")
    def any_rows(x: Tensor) -> Tensor:
        return x + 1

    @any_rows.set_body
    def body(x: Tensor) -> Tensor:
        return by_size(x)[None] * 0 + x + 1

    with pytest.raises(TranslationError) as caught:
        travel(lambda x: any_rows(x), (torch.randn(3, 4),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    assert "The body of test_operator::any_rows at " in caught.value.message
    assert "test_operator.py:" in caught.value.message
    assert "size" in caught.value.message


def test_a_shape_function_and_a_body_for_opaque_code() -> None:
    trip = travel(lambda x: opaque(x) * 2, (torch.randn(3, 4),))
    assert trip.op_types[0] == "test_operator::opaque"
    trip.check(torch.randn(3, 4))


def test_a_body_that_can_not_be_captured_is_named() -> None:
    broken = opbridge.operator("test_operator::broken_body")(lambda_with_annotations)
    broken.set_body(numpy_sort)
    with pytest.raises(TranslationError) as caught:
        travel(lambda x: broken(x), (torch.randn(3, 4),))
    assert "The body of test_operator::broken_body at " in caught.value.message
    assert "can't be captured" in caught.value.message


def lambda_with_annotations(x: Tensor) -> Tensor:
    return x + 1


def test_the_operator_is_called_like_its_function() -> None:
    x = torch.randn(3, 4)
    assert isinstance(twice_plus, Operator)
    assert find_operator("test_operator::twice_plus") is twice_plus
    assert twice_plus.__doc__ == "Return 2a + b."
    assert torch.equal(twice_plus(x, x), 3 * x)
    assert torch.equal(torch.ops.test_operator.twice_plus(x, x), 3 * x)
    assert torch.equal(scaled(x, mode="negative"), -2 * x)


@pytest.mark.quick("test_operator::masked-", every=3)
@pytest.mark.parametrize(
    ("declared", "args"),
    [
        (twice_plus, (torch.randn(3, requires_grad=True), torch.randn(3))),
        (scaled, (torch.randn(3, requires_grad=True), 3.0, 2)),
        (masked, (torch.randn(3, requires_grad=True), None, torch.randn(3, requires_grad=True))),
        (both, (torch.randn(2, 3, requires_grad=True),)),
        (total, ([torch.randn(3, requires_grad=True), torch.randn(3)], 2.0)),
        (nested, (torch.randn(3, requires_grad=True),)),
    ],
    ids=lambda value: value.target if isinstance(value, Operator) else "",
)
def test_it_is_a_sound_torch_operator(declared: Operator, args: tuple[object, ...]) -> None:
    torch.library.opcheck(declared._definition, args)


def test_gradients() -> None:
    def double(*size: int) -> Tensor:
        return torch.randn(*size, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(twice_plus, (double(3), double(3)))
    assert torch.autograd.gradcheck(lambda x: scaled(x, 3.0, 3), (double(3),))
    assert torch.autograd.gradcheck(lambda x, b: masked(x, None, b), (double(3), double(3)))
    assert torch.autograd.gradcheck(lambda x: both(x)[0], (double(2, 3),))
    assert torch.autograd.gradcheck(lambda a, b: total([a, b], 0.5), (double(3), double(3)))


def test_a_gradient_through_outputs_that_have_none() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    values, indices = both(x)
    assert not indices.requires_grad or indices.dtype == torch.int64
    values.sum().backward()
    assert x.grad is not None
    assert x.grad.sum() == 2


@pytest.mark.parametrize("target", ["my_add", "a::b::c", "a::b.overload", "a-b::c", "", "::x"])
def test_a_malformed_target(target: str) -> None:
    with pytest.raises(InputError, match="the name of an operator has the form 'namespace::name'") as caught:
        opbridge.operator(target)
    assert "@opbridge.operator('mylib::my_add')" in caught.value.fix


def test_a_function_without_annotations() -> None:
    def bare(x, y):
        return x + y

    with pytest.raises(InputError, match="torch can't read the function's signature") as caught:
        opbridge.operator("test_operator::bare")(bare)
    assert "annotate every parameter and the result" in caught.value.fix
    assert find_operator("test_operator::bare") is None


def test_a_name_that_torch_has() -> None:
    with pytest.raises(InputError, match="torch already has an operator of this name") as caught:
        opbridge.operator("aten::relu")(lambda_with_annotations)
    assert "opbridge.translation" in caught.value.fix


def test_declared_twice_names_both_places() -> None:
    def another(a: Tensor, b: Tensor) -> Tensor:
        return a - b

    with pytest.raises(InputError, match=r"'test_operator::twice_plus' is declared twice") as caught:
        opbridge.operator("test_operator::twice_plus")(another)
    assert twice_plus.source in caught.value.message
    assert f"{__file__}:{another.__code__.co_firstlineno}" in caught.value.message
    assert torch.equal(twice_plus(torch.ones(2), torch.ones(2)), torch.full((2,), 3.0)), "the first stays in force"


RELOADED = """
import opbridge
from torch import Tensor

@opbridge.operator("test_operator_reloaded::grown")
def grown(x: Tensor) -> Tensor:
    return x + 1
"""


def load(path: Path, name: str) -> object:
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def test_a_reloaded_file_replaces_its_declarations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "grown.py"
    file.write_text(RELOADED)
    first = load(file, "test_operator_grown")
    file.write_text("# An edit moves the declaration down.\n" + RELOADED.replace("x + 1", "x + 2"))
    importlib.invalidate_caches()
    second = load(file, "test_operator_grown")
    monkeypatch.delitem(sys.modules, "test_operator_grown")
    assert first is not second
    assert find_operator("test_operator_reloaded::grown") is second.grown
    trip = travel(lambda x: second.grown(x), (torch.zeros(3),))
    np.testing.assert_array_equal(trip.run(torch.zeros(3))[0], [2, 2, 2])


@opbridge.operator("test_operator::liar")
def liar(x: Tensor) -> Tensor:
    """Return x with a row more than its shape function says."""
    return torch.cat([x, x[:1]])


@liar.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@opbridge.operator("test_operator::half_liar")
def half_liar(x: Tensor) -> Tensor:
    """Return x in another type than its shape function says."""
    return x.double()


@half_liar.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("dynamic", [None, {"x": {0: "rows"}}], ids=["static", "dynamic"])
def test_a_fake_that_disagrees(tmp_path: Path, dynamic: object) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return liar(x)

    with pytest.raises(CaptureError) as caught:
        opbridge.export(Model(), (torch.randn(3, 4),), path=tmp_path / "out", dynamic_shapes=dynamic)
    assert "The fake of test_operator::liar disagrees with the operator: output 0 is float32 of shape (4, 4)" in str(
        caught.value
    )
    assert "correct the shape function" in caught.value.fix
    assert not (tmp_path / "out").exists()


def test_a_fake_that_disagrees_in_the_type_and_inside_a_branch() -> None:
    program = torch.export.export(torch.nn.Sequential(), (torch.randn(3),))
    check_fakes(program)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: half_liar(x), lambda x: x.clone(), (x,))

    program = torch.export.export(Model(), (torch.randn(3, 4),))
    with pytest.raises(CaptureError, match=r"output 0 is float64 of shape \(3, 4\), but its fake returns float32"):
        check_fakes(program)


def test_checking_fakes_leaves_the_random_numbers_of_the_user_alone() -> None:
    program = torch.export.export(torch.nn.Sequential(), (torch.randn(3),))

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return twice_plus(x, x)

    program = torch.export.export(Model(), (torch.randn(3),))
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    check_fakes(program)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.fixture(scope="module")
def foreign() -> torch.library.Library:
    """Operators that somebody else registered, without shape functions."""
    library = torch.library.Library("test_operator_foreign", "DEF")
    library.define("squares(Tensor x, int n=2) -> Tensor")
    library.impl("squares", lambda x, n=2: x**n, "CPU")
    library.define("unfaked(Tensor x) -> Tensor")
    library.impl("unfaked", lambda x: x + 1, "CPU")
    return library


def test_a_fake_and_a_body_for_somebody_elses_operator(foreign: torch.library.Library) -> None:
    @opbridge.fake_for("test_operator_foreign::squares")
    def fake(x: Tensor, n: int = 2) -> Tensor:
        return torch.empty_like(x)

    @opbridge.body_for("test_operator_foreign::squares")
    def body(x: Tensor, n: int = 2) -> Tensor:
        return x**n

    def model(x: Tensor) -> Tensor:
        return torch.ops.test_operator_foreign.squares(x) + torch.ops.test_operator_foreign.squares(x, 3)

    trip = travel(model, (torch.randn(3, 4),))
    assert trip.op_types[:2] == ["test_operator_foreign::squares"] * 2
    trip.check(torch.randn(3, 4))


def test_a_missing_fake_is_a_capture_error_with_the_fix(foreign: torch.library.Library) -> None:
    with pytest.raises(CaptureError) as caught:
        travel(lambda x: torch.ops.test_operator_foreign.unfaked(x), (torch.randn(3),))
    assert "test_operator_foreign::unfaked" in caught.value.message
    assert "fake_for" in caught.value.fix


def test_a_fake_for_an_operator_that_is_not_there() -> None:
    with pytest.raises(InputError, match="torch has no operator of this name") as caught:
        opbridge.fake_for("test_operator_foreign::nowhere")(lambda x: x)
    assert "first import the library that registers it" in caught.value.fix
