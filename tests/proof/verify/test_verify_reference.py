"""The float64 reference: every dtype argument is widened, decisions and draws are those of the model's own dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from one_node import make_model
from onnx import TensorProto, helper, numpy_helper
from torch._higher_order_ops.scan import scan
from verify_models import Function, captured

from opbridge.onnx_model.read import model_of_proto
from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.captured_run import Decision, Resumption
from opbridge.proof.verify.float64_call import widen
from opbridge.proof.verify.original_runs import _inlined

torch.manual_seed(0)
X = torch.randn(6, 5)


def run(function: Any, *args: Any) -> Any:
    return CapturedGraph(captured(Function(function), args).program).run(args)


def close(float64: torch.Tensor, expected: torch.Tensor) -> bool:
    assert float64.dtype is torch.float64
    return torch.allclose(float64, expected, rtol=1e-14, atol=1e-14)


def test_hard_coded_dtypes_are_widened() -> None:
    def function(x: torch.Tensor) -> Any:
        y = torch.sin(x).to(torch.float32) + torch.arange(5, dtype=torch.float32) / 3
        return y.half().float() * torch.full((5,), 0.1), torch.linspace(0, 1, 5) * y, y.type(torch.bfloat16)

    found = run(function, X)
    y = X.double().sin() + torch.arange(5, dtype=torch.float64) / 3
    assert close(found.float64[0], y * torch.full((5,), 0.1, dtype=torch.float64))
    assert close(found.float64[1], torch.linspace(0, 1, 5, dtype=torch.float64) * y)
    assert close(found.float64[2], y)
    assert [value.dtype for value in found.own] == [torch.float32, torch.float32, torch.bfloat16]


def test_autocast_and_nested_graphs_are_widened() -> None:
    weight = torch.randn(5, 5)

    def function(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ weight
        z = torch.cond(x.sum() > -100, lambda a: a.sin().float(), lambda a: a.float(), (y,))
        total, rows = scan(lambda carry, row: (carry + row, (carry * row).float()), torch.zeros(5), x)
        return y, z, total, rows

    found = run(function, X)
    product = X.double() @ weight.double()
    assert found.own[0].dtype is torch.bfloat16
    assert close(found.float64[0], product)
    assert close(found.float64[1], product.sin())
    assert close(found.float64[2], X.double().sum(0))
    before = X.double().cumsum(0) - X.double()
    assert close(found.float64[3], before * X.double())
    assert torch.allclose(found.own[3].double(), found.float64[3], atol=1e-5)


def test_parameters_buffers_and_complex_numbers_are_widened() -> None:
    layer = torch.nn.Linear(5, 4)
    module = torch.nn.Sequential(layer, torch.nn.BatchNorm1d(4))
    item = captured(module, (X,))
    found = CapturedGraph(item.program).run([X])
    plain = X.double() @ layer.weight.double().T + layer.bias.double()
    assert close(found.float64[0], plain / (1 + 1e-5) ** 0.5)
    spectrum = run(lambda x: torch.fft.fft(x), X)
    assert spectrum.float64[0].dtype is torch.complex128
    assert torch.allclose(spectrum.float64[0], torch.fft.fft(X.double()), rtol=1e-14)


def test_operator_without_float64_is_named_and_runs_in_its_own_dtype() -> None:
    @torch.library.custom_op("verify_tests::only_single", mutates_args=())
    def only_single(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise RuntimeError("not implemented for 'Double'")
        return x * 2

    only_single.register_fake(torch.empty_like)
    found = run(lambda x: torch.ops.verify_tests.only_single(x.sin()).exp(), X)
    assert found.without_float64 == ("verify_tests::only_single",)
    assert found.float64[0].dtype is torch.float64
    assert torch.allclose(found.float64[0], (X.double().sin() * 2).exp(), rtol=1e-6)


def test_decisions_and_draws_are_those_of_the_own_dtype() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 0.1
        return torch.floor(y * 10), y * 10 >= 1, torch.rand_like(x) + y, torch.fmod(y, 0.1)

    x = torch.arange(1.0, 8.0)
    found = run(function, x)
    assert torch.equal(found.float64[0], found.own[0].double())
    assert torch.equal(found.float64[1], found.own[1])
    assert torch.allclose(found.float64[2], found.own[2].double(), atol=1e-6)
    assert found.random == [False, False, True, False]
    assert ((found.float64[3] - found.own[3].double()).abs() < 1e-6).all()


def test_dropout_in_evaluation_is_not_random() -> None:
    found = run(lambda x: torch.nn.functional.dropout(x, 0.5, False), X)
    assert found.random == [False]


def test_in_place_changes_do_not_reach_the_inputs_or_the_other_run() -> None:
    before = X.clone()
    found = run(lambda x: x.add_(1).floor_().mul_(0.1) + x, X)
    assert torch.equal(X, before)
    assert torch.allclose(found.float64[0], found.own[0].double(), atol=1e-6)


def test_a_view_of_a_mask_that_is_changed_in_place() -> None:
    def runs_of_equal_numbers(x: torch.Tensor) -> torch.Tensor:
        number = x.floor().long()
        begins = torch.ones(number.shape[0], dtype=torch.bool)
        begins[1:] = number[1:] != number[:-1]
        return x.cumsum(0)[begins]

    found = run(runs_of_equal_numbers, torch.tensor([0.5, 0.7, 1.2, 3.1, 3.4]))
    assert found.own[0].shape == found.float64[0].shape == (3,)


def test_a_reference_is_run_without_the_weights_that_nothing_reads() -> None:
    """They may be many times as large as the file that they come from."""
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    weights = [one, *(helper.make_tensor(name, TensorProto.FLOAT, [1], [2.0]) for name in ("two", "given", "unread"))]
    branch = helper.make_graph(
        [helper.make_node("Neg", ["two"], ["inner"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1])],
    )
    nodes = [
        helper.make_node("Add", ["x", "one"], ["y"]),
        helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch),
    ]
    inputs = {"x": ("FLOAT", [1]), "c": ("BOOL", []), "given": ("FLOAT", [1])}
    model = model_of_proto(make_model(nodes, inputs, {"y": ("FLOAT", [1]), "z": ("FLOAT", [1])}, initializers=weights))
    assert set(_inlined(model).graph.initializers) == {"one", "two", "given"}
    assert set(model.graph.initializers) == {"one", "two", "given", "unread"}


def test_a_view_of_a_result_that_has_another_layout_than_in_the_capture() -> None:
    layer = torch.nn.LSTM(5, 3, batch_first=True)
    x = torch.randn(2, 6, 5)
    found = run(lambda x: layer(x)[0].contiguous().view(12, 3), x)
    assert close(found.float64[0], layer.double()(x.double())[0].reshape(12, 3))


class _Forced:
    """Selects these rows, and counts the decisions."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = torch.tensor(rows)
        self.keys: list[str] = []

    def decide(self, decision: Decision) -> tuple[Any, Any]:
        self.keys.append(decision.key)
        if "topk" not in decision.key:
            return decision.own, decision.float64
        return (decision.own[0], self.rows), (decision.float64[0], self.rows)


def test_runs_that_begin_at_a_selection_equal_whole_runs() -> None:
    def function(x: torch.Tensor) -> Any:
        positive = x > 0
        return x[x[:, 0].sigmoid().topk(2).indices] * 2, positive

    graph = CapturedGraph(captured(Function(function), (X,)).program)
    (topk,) = (node.name for node in graph.module.graph.nodes if "topk" in node.name)
    resumption = Resumption(topk)
    for number, rows in enumerate(([0, 1], [4, 2], [5, 5])):
        whole, resumed = _Forced(rows), _Forced(rows)
        expected = graph.run([X], observer=whole)
        found = graph.run([X], observer=resumed, resumption=resumption)
        assert torch.equal(found.own[0], X[rows] * 2)
        assert torch.equal(found.float64[0], expected.float64[0])
        assert torch.equal(found.own[1], expected.own[1])
        assert len(resumed.keys) == len(whole.keys) - (number > 0)  # the comparison is not run again


def test_runs_after_random_draws_begin_at_the_beginning() -> None:
    graph = CapturedGraph(captured(Function(lambda x: (x + torch.rand(6, 5)).flatten().topk(3)), (X,)).program)
    (topk,) = (node.name for node in graph.module.graph.nodes if "topk" in node.name)
    resumption = Resumption(topk)
    first = graph.run([X], resumption=resumption)
    assert resumption.values is None
    assert torch.equal(graph.run([X], resumption=resumption).own[0], first.own[0])


def test_a_weight_of_a_class_with_one_dtype_is_not_widened() -> None:
    class Quantized(torch.Tensor):
        """As those of optimum-quanto."""

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.to:
                raise ValueError("The dtype of a quantized tensor is that of its scale.")
            return super().__torch_function__(func, types, args, kwargs)

    weight = torch.ones(2).as_subclass(Quantized)
    assert widen(weight) is weight
