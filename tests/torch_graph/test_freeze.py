"""Freezing: the export sees parameters without gradients; the user's model comes back exactly as it was."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from roundtrip import travel
from torch import Tensor, nn

import opbridge
from opbridge.capture.capture import capture
from opbridge.errors import CaptureError
from opbridge.proof.verify.eager import Eager
from opbridge.torch_graph.freeze import frozen, without_gradients
from opbridge.torch_graph.weights import has_other_weights, hashed_weights


class Mixed(nn.Module):
    """Every kind of state: tied and frozen parameters, buffers, parts in different modes, statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.norm, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.register_buffer("learnt", torch.ones(4, requires_grad=True))
        self.register_buffer("passing", torch.zeros(4), persistent=False)
        self.dropout.eval()
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x)) * self.learnt + self.passing
        if self.fails:
            y = y * float(f"{y.sum():.2f}")
        return self.norm(self.dropout(y))


def state(module: nn.Module) -> dict[str, Any]:
    """Everything of a module that may be changed, the identity of its tensors included."""
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    return {
        "tensors": {k: (id(v), v.requires_grad, v.data_ptr(), v.grad) for k, v in tensors.items()},
        "values": {k: v.detach().clone().numpy().tobytes() for k, v in tensors.items()},
        "modes": {name: part.training for name, part in module.named_modules()},
        "attributes": {name: sorted(vars(part)) for name, part in module.named_modules()},
    }


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_it_was(fails: bool, tmp_path: Path) -> None:
    model = Mixed()
    model.fails = fails
    x = torch.randn(3, 4, requires_grad=True)
    before = state(model)
    if fails:
        with pytest.raises(CaptureError, match=r"y\.sum"):
            opbridge.export(model, (x,), path=tmp_path / "out")
    else:
        bundle = opbridge.export(model, (x,), path=tmp_path / "out")
        assert bundle.verified
    assert state(model) == before
    assert x.requires_grad
    assert x.grad is None
    model.train()
    model.fails = False
    model(x).sum().backward()
    assert model.first.weight.grad is not None, "it can still be trained"


def fail_frozen(model: nn.Module) -> None:
    with frozen(model) as was_training:
        assert was_training
        assert not any(t.requires_grad for t in (*model.parameters(), *model.buffers()))
        assert not any(part.training for part in model.modules())
        raise RuntimeError("inside")


def test_frozen_undoes_itself_after_an_error() -> None:
    model = Mixed()
    before = state(model)
    with pytest.raises(RuntimeError, match="inside"):
        fail_frozen(model)
    assert state(model) == before


def test_frozen_of_a_model_in_evaluation_mode() -> None:
    with frozen(Mixed().eval()) as was_training:
        assert not was_training


class Caching(nn.Module):
    """Every way to keep something from a forward pass; a literal that only the first pass needs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.table, self.tables, self.rows = None, {}, []
        self.loose = torch.arange(4.0)
        self.register_buffer("late", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.tensor([0.5, 1.0, 2.0, 4.0]) * 2
        if not self.tables:
            self.tables["rows"] = torch.ones(4)
        if not self.rows:
            self.rows.append(torch.full((4,), 3.0))
        if self.late is None:
            self.late = torch.full((4,), 0.25)
        self.loose = self.loose.to(x.dtype)
        y = self.inner(x) * self.table + self.tables["rows"] * self.rows[0]
        return y + self.late + self.loose


def test_what_a_forward_pass_keeps_is_not_there_after_a_capture(tmp_path: Path) -> None:
    model = Caching().eval()
    before = state(model)
    bundle = opbridge.export(model, (torch.randn(3, 4),), path=tmp_path / "out")
    assert bundle.verified
    assert state(model) == before
    assert (model.table, model.tables, model.rows, model.late) == (None, {}, [], None)


class Counting(nn.Module):
    """A tensor that is no buffer, a buffer, a list and an attribute, each changed in place; the first is returned."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.plain, self.lines, self.calls, self.fails = torch.zeros(2), [1, 2], 0, fails
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.plain += x
        self.total += x
        self.lines.clear()
        self.calls += 1
        self.added = nn.Linear(2, 2)
        if self.fails:
            raise RuntimeError("at the end")
        return self.plain


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_of_the_module_leaves_no_trace(fails: bool) -> None:
    model, x = Counting(fails), torch.ones(2)
    names = list(model.state_dict())
    for _ in range(2):
        if fails:
            with pytest.raises(RuntimeError, match="at the end"):
                Eager(model, [0]).run((x,), {}, seed=0)
        else:
            assert Eager(model, [0]).run((x,), {}, seed=0)[0].tolist() == [1, 1], "not what was put back"
    assert (model.lines, model.calls, hasattr(model, "added")) == ([1, 2], 0, False)
    assert not model.plain.any()
    assert not model.total.any()
    assert list(model.state_dict()) == names


@pytest.mark.quick("False", every=3)
@pytest.mark.parametrize("run_first", [False, True])
def test_a_model_that_was_run_is_the_one_that_was_exported(run_first: bool) -> None:
    model, x = Caching().eval(), torch.randn(3, 4)
    recorded = {}
    for was_run in (False, True):
        if was_run:
            model(x)
        if was_run is run_first:
            recorded = hashed_weights(capture(model, (x,)).program)
    assert not has_other_weights(capture(model, (x,)).program, recorded)
    other = Caching().eval()
    other.load_state_dict(model.state_dict(), strict=False)
    assert not has_other_weights(capture(other, (x,)).program, recorded), "a new one, that was never run"
    other.loose = other.loose + 1
    assert has_other_weights(capture(other, (x,)).program, recorded), "a tensor that is no parameter"
    assert has_other_weights(capture(Caching(), (x,)).program, recorded), "the parameters"


def test_tied_parameters_are_one_initializer() -> None:
    trip = travel(Mixed(), (torch.randn(3, 4),))
    state_dict = trip.captured.program.state_dict
    assert state_dict["first.weight"] is state_dict["second.weight"]
    assert not any(value.requires_grad for value in state_dict.values())
    shapes = [tuple(item.dims) for item in trip.proto.graph.initializer]
    assert shapes.count((4, 4)) == 1
    model = trip.captured.module.eval()
    (result,) = trip.run(x := torch.randn(3, 4))
    np.testing.assert_allclose(result, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_one_tensor_passed_as_two_inputs() -> None:
    x = torch.randn(3)
    trip = travel(lambda a, b: a - 2 * b, (x, x))
    assert [value.name for value in trip.proto.graph.input] == ["a", "b"]
    trip.check(torch.randn(3), torch.randn(3))


def test_without_gradients() -> None:
    x = torch.randn(3, requires_grad=True)
    plain = torch.randn(2)
    first, (second, third), number = without_gradients((x, [x, plain], 5))
    assert not first.requires_grad
    assert first is not second
    assert first.data_ptr() != second.data_ptr()
    assert third is plain
    assert number == 5
    assert x.requires_grad


class Attention(nn.Module):
    """As T5 and Swin have it: the bias of the attention is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.table = nn.Parameter(torch.randn(9, 4) * 0.1)
        self.register_buffer("rows", torch.arange(5)[:, None] - torch.arange(5)[None] + 4)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = self.project(x).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.rows].permute(2, 0, 1)[None]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return mixed.transpose(1, 2).reshape(batch, length, 16)


@pytest.mark.quick("static", every=3)
@pytest.mark.parametrize("dynamic", [None, {"x": {0: "batch"}}], ids=["static", "dynamic"])
def test_attention_with_a_bias_that_requires_grad(dynamic: Any) -> None:
    model = Attention()
    assert model.table.requires_grad
    trip = travel(model, (torch.randn(2, 5, 16),), dynamic_shapes=dynamic)
    trip.check(torch.randn(2, 5, 16))
    if dynamic:
        trip.check(torch.randn(3, 5, 16))
    assert model.table.requires_grad


def test_a_program_of_the_users_is_not_changed() -> None:
    program = torch.export.export(Attention(), (torch.randn(2, 5, 16),))
    before = {name: (id(value), value.requires_grad) for name, value in program.state_dict.items()}
    graph = str(program.graph)
    trip = travel(program, ())
    assert {name: (id(value), value.requires_grad) for name, value in program.state_dict.items()} == before
    assert str(program.graph) == graph
    x = torch.randn(2, 5, 16)
    np.testing.assert_allclose(trip.run(x)[0], program.module()(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_threads_that_capture_one_model_leave_it_as_it_was() -> None:
    model = Mixed()
    before = state(model)
    graphs: list[str] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            captured = capture(model, (torch.randn(3, 4),))
            assert captured.was_training
            assert not any(value.requires_grad for value in captured.program.state_dict.values())
            graphs.append(str(captured.program.graph))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(graphs)) == 1
    assert state(model) == before


def test_a_copy_of_the_model_made_meanwhile_is_not_needed() -> None:
    """Freezing copies no weights: a model may be as large as the memory."""
    model = nn.Linear(4, 4)
    captured = capture(model, (torch.randn(2, 4),))
    assert captured.program.state_dict["weight"].data_ptr() == model.weight.data_ptr()
    assert copy.deepcopy(captured.program.state_dict["weight"]).requires_grad is False


class Scaled(torch.Tensor):
    """A weight as of torchao: integers and a scale, without the operators of other tensors."""

    def __new__(cls, integers: Tensor, scale: Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, integers.shape, dtype=scale.dtype)

    def __init__(self, integers: Tensor, scale: Tensor) -> None:
        self.integers, self.scale = integers, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["integers", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], context: None, size: object, stride: object) -> Scaled:
        return Scaled(**parts)

    @classmethod
    def __torch_dispatch__(cls, function: object, types: object, args: tuple = (), kwargs: object = None) -> object:
        if function is torch.ops.aten.detach.default:
            return Scaled(args[0].integers, args[0].scale)
        raise NotImplementedError(str(function))


def test_weights_of_a_tensor_class_are_hashed_by_their_parts() -> None:
    program = torch.export.export(nn.Linear(2, 3), (torch.randn(1, 2),))
    hashes = []
    for number in (1, 1, 2):
        program.state_dict["weight"] = Scaled(torch.full((3, 2), number, dtype=torch.int8), torch.tensor(0.5))
        hashes.append(hashed_weights(program)["weights"])
    assert hashes[0] == hashes[1] != hashes[2]
