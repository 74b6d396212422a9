"""Planted faults: everything that an exporter or an engine can get wrong must fail, with the output named."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from verify_models import Altered, Attention, Captured, ConvNet, Function, captured, onnx_model, session

from opbridge.errors import EngineError
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verify import verify

pytestmark = pytest.mark.newest


@functools.cache
def conv() -> tuple[Captured, onnx.ModelProto]:
    item = captured(ConvNet(), (torch.rand(2, 3, 16, 12),))
    return item, onnx_model(item)


@functools.cache
def attention() -> tuple[Captured, onnx.ModelProto]:
    item = captured(Attention(1), (torch.randint(0, 50, (3, 9)), torch.ones(3, 9, dtype=torch.bool)))
    return item, onnx_model(item)


@functools.cache
def mixed() -> tuple[Captured, onnx.ModelProto]:
    torch.manual_seed(0)
    weight = torch.randn(32, 32)

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x @ weight
        return z - y, z.argmax(-1), z.topk(4)[1], z > y, torch.floor(z)

    item = captured(Function(function), (torch.randn(40, 32), torch.randn(40, 32)))
    return item, onnx_model(item)


def node_of(model: onnx.ModelProto, operator: str, number: int = 0) -> onnx.NodeProto:
    return [node for node in model.graph.node if node.op_type == operator][number]


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept if value is None else [*kept, helper.make_attribute(name, value)])


def scale_constant(model: onnx.ModelProto, name: str, factor: float) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), name))


def check(built: tuple[Captured, onnx.ModelProto], change: Any) -> Any:
    item, model = built
    model = copy.deepcopy(model)
    change(model)
    return verify(CapturedReference(item), session(model), engine="onnxruntime")


CONV_FAULTS = {
    "divisor counts the padding": lambda m: set_attribute(node_of(m, "AveragePool"), "count_include_pad", 1),
    "gelu by tanh": lambda m: set_attribute(node_of(m, "Gelu"), "approximate", "tanh"),
    "padding on one side": lambda m: set_attribute(node_of(m, "Conv"), "pads", [0, 0, 2, 2]),
    "wrong alpha": lambda m: set_attribute(node_of(m, "Gemm"), "alpha", 1.0001),
    "dropped bias": lambda m: node_of(m, "Conv").input.pop(),
    "bias off by 0.1%": lambda m: scale_constant(m, "body.8.bias", 1.001),
    "kernel flipped": lambda m: scale_constant(m, "body.4.weight", -1.0),
}


@pytest.mark.quick("padding on one side")
@pytest.mark.parametrize("name", CONV_FAULTS)
def test_fault_in_a_convolution_network_fails(name: str) -> None:
    found = check(conv(), CONV_FAULTS[name])
    assert found.verdict in ("failed", "error")
    assert not found.passed
    if found.verdict == "failed":
        assert found.comparisons[0].status == "differs"
        assert found.comparisons[0].ratio > 1
        assert "units" in str(found.comparisons[0])


ATTENTION_FAULTS = {
    "softmax axis off by one": lambda m: set_attribute(node_of(m, "Softmax"), "axis", 1),
    "wrong scale": lambda m: scale_constant(m, node_of(m, "Div").input[1], 1.01),
    "wrong epsilon": lambda m: set_attribute(node_of(m, "LayerNormalization"), "epsilon", 1e-3),
    "swapped inputs": lambda m: swap(node_of(m, "Div")),
    "mask inverted": lambda m: swap(node_of(m, "Where"), 1, 2),
    "residual from elsewhere": lambda m: replace_input(node_of(m, "Add", -1), 0, node_of(m, "Gather").output[0]),
}


def swap(node: onnx.NodeProto, first: int = 0, second: int = 1) -> None:
    node.input[first], node.input[second] = node.input[second], node.input[first]


def replace_input(node: onnx.NodeProto, index: int, value: str) -> None:
    node.input[index] = value


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION_FAULTS)
def test_fault_in_attention_fails(name: str) -> None:
    found = check(attention(), ATTENTION_FAULTS[name])
    assert found.verdict == "failed"
    assert found.comparisons[0].status == "differs"


@pytest.mark.slow
def test_the_unchanged_models_pass() -> None:
    for built in (conv(), attention(), mixed()):
        found = check(built, lambda model: None)
        assert found.passed, found.summary()
        assert found.eager_matches_capture is True


def _shifted(name: str, amount: int) -> Any:
    return lambda results: results.update({name: (results[name] + amount).astype(results[name].dtype)})


RESULT_FAULTS = {
    "swapped operands": ("out_0", lambda r: r.update(out_0=-r["out_0"])),
    "one wrong element": ("out_0", lambda r: r["out_0"].__setitem__((3, 5), 7.0)),
    "argmax off by one": ("out_1", _shifted("out_1", 1)),
    "one wrong index": ("out_1", lambda r: r["out_1"].__setitem__(7, (r["out_1"][7] + 3) % 32)),
    "an index twice": ("out_2", lambda r: r["out_2"].__setitem__((0, 1), r["out_2"][0, 0])),
    "topk order reversed": ("out_2", lambda r: r.update(out_2=np.ascontiguousarray(r["out_2"][:, ::-1]))),
    "index out of range": ("out_2", _shifted("out_2", 64)),
    "comparison negated": ("out_3", lambda r: r.update(out_3=~r["out_3"])),
    "ceil for floor": ("out_4", lambda r: r.update(out_4=r["out_4"] + 1)),
    "not finite": ("out_0", lambda r: r["out_0"].__setitem__((0, 0), np.nan)),
}


@pytest.mark.quick("argmax")
@pytest.mark.parametrize("name", RESULT_FAULTS)
def test_fault_in_one_result_fails_for_that_output_only(name: str) -> None:
    item, model = mixed()
    output, change = RESULT_FAULTS[name]
    altered = Altered(session(model), lambda results: edit(results, change))
    found = verify(CapturedReference(item), altered, engine="onnxruntime")
    assert found.verdict == "failed"
    assert [comparison.output for comparison in found.comparisons if not comparison.passed] == [output]


def copied(results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in results.items()}


def edit(results: dict[str, np.ndarray], change: Any) -> dict[str, np.ndarray]:
    results = copied(results)
    change(results)
    return results


def test_renamed_output_is_missing_and_the_new_name_unexpected() -> None:
    item, model = mixed()
    altered = Altered(session(model), lambda results: {("y" if k == "out_0" else k): v for k, v in results.items()})
    found = {c.output: c for c in verify(CapturedReference(item), altered, engine="onnxruntime").comparisons}
    assert found["out_0"].status == "missing"
    assert found["out_0"].detail == "the model has no such output; it has: y, out_1, out_2, out_3, out_4"
    assert found["y"].status == "missing"
    assert found["y"].detail == "PyTorch has no output of this name"


@pytest.mark.slow
def test_changed_dtype_fails() -> None:
    def to_double(model: onnx.ModelProto) -> None:
        output = model.graph.output[0]
        model.graph.node.append(helper.make_node("Cast", [output.name], ["wide"], to=TensorProto.DOUBLE))
        node_of(model, "Gemm").output[0] = "narrow"
        model.graph.node[-1].input[0], model.graph.node[-1].output[0] = "narrow", output.name
        output.type.tensor_type.elem_type = TensorProto.DOUBLE

    found = check(conv(), to_double)
    assert found.verdict == "failed"
    assert found.comparisons[0].status == "dtype"
    assert found.comparisons[0].detail == "the engine gives float64, PyTorch float32"


@pytest.mark.parametrize("change", [lambda a: a[None], lambda a: a[:1], lambda a: a[..., None]])
def test_changed_shape_fails(change: Any) -> None:
    item, model = mixed()
    altered = Altered(session(model), lambda results: {**results, "out_0": change(results["out_0"])})
    found = verify(CapturedReference(item), altered, engine="onnxruntime")
    assert found.comparisons[0].status == "shape"
    assert found.comparisons[0].detail.endswith("PyTorch [40, 32]")
    assert found.verdict == "failed"


@pytest.mark.slow
def test_engine_failure_is_a_case_and_the_run_goes_on() -> None:
    item = captured(Function(lambda x: x * 2), (torch.randn(4, 3),), ({0: torch.export.Dim("n")},))
    inner = session(onnx_model(item))

    class Breaks:
        runs = 0

        def run(self, feeds: Any) -> Any:
            self.runs += 1
            if self.runs == 1:
                raise EngineError("the engine died of signal 11", fix="report it.")
            return inner.run(feeds)

    found = verify(CapturedReference(item), Breaks(), engine="onnxruntime")
    assert found.verdict == "error"
    assert found.error == "the engine died of signal 11"
    assert [case.verdict for case in found.cases] == ["error", "passed", "passed"]
    assert "the engine died of signal 11" in found.summary()


@pytest.mark.slow
def test_size_baked_into_the_model_fails_at_other_sizes() -> None:
    item = captured(Function(lambda x: x / x.shape[0]), (torch.randn(4, 3),), ({0: torch.export.Dim("n")},))
    right = session(onnx_model(item))
    baked = Altered(right, lambda results: {"out_0": results["out_0"] * np.float32(len(results["out_0"]) / 4)})
    found = verify(CapturedReference(item), baked, engine="onnxruntime")
    assert [case.verdict for case in found.cases] == ["passed", "failed", "failed"]


@pytest.mark.slow
def test_captured_graph_that_is_not_the_module_fails() -> None:
    item, model = conv()
    other = ConvNet()
    with torch.no_grad():
        other.body[8].bias.add_(0.5)
    wrong = Captured(item.program, other, item.args, item.kwargs, item.input_names, item.output_names)
    found = verify(CapturedReference(wrong), session(model), engine="onnxruntime")
    assert found.eager_matches_capture is False
    assert found.verdict == "failed"
    assert "the captured graph does not compute what the module computes" in found.summary()
