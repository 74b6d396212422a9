"""What is special to OpenVINO: a frontend that crashes when it is asked, and a plugin that takes no unknown ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from one_node import FLOAT, make_model, one_node, to_ir, value_info
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opbridge
from opbridge import engines
from opbridge.engines.openvino.passes.scan_states import ScanStatesPass
from opbridge.engines.openvino.questions import OpenVinoQuestions
from opbridge.engines.question import bare_model

pytest.importorskip("openvino")

ENGINE = engines.get("openvino")


def test_a_crash_of_the_frontend_is_an_answer() -> None:
    questions = OpenVinoQuestions("OpenVINO")
    answer = questions.about(bare_model("", "Max", {"": 19}, 10))
    assert answer.crashed.startswith("OpenVINO crashed (SIGSEGV) while converting a model of one node")
    relu = one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])]).SerializeToString()
    after = questions.about(relu)
    assert (after.problem, after.left, after.crashed) == ("", (), "")


def test_a_node_whose_input_has_no_type_is_asked_for_by_its_name() -> None:
    model = to_ir(one_node("Max", [(FLOAT, [2]), (FLOAT, [2])], [(FLOAT, [2])]))
    node = model.graph[0]
    node.inputs[0].type = None
    assert ENGINE.supports(node, model.opset_imports) is None


def test_a_node_of_unknown_rank_is_judged_by_its_conversion() -> None:
    model = to_ir(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])]))
    node = model.graph[0]
    node.inputs[0].shape = None
    node.outputs[0].shape = None
    assert ENGINE.supports(node, model.opset_imports) is None
    refused = to_ir(one_node("StringNormalizer", [("STRING", [2])], [("STRING", [2])]))
    node = refused.graph[0]
    node.inputs[0].shape = None
    refusal = ENGINE.supports(node, refused.opset_imports)
    assert refusal is not None
    assert refusal.operator == "ai.onnx::StringNormalizer"


@pytest.mark.sweep
def test_a_loop_whose_body_states_no_ranks_runs(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cummax(torch.special.i0e(x), 1).values

    bundle = opbridge.export(Net(), (torch.randn(2, 5),), path=tmp_path / "bundle", engines=["openvino"])
    assert bundle.verified, bundle.verification


class _Distances(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pdist(x)


@pytest.mark.slow
def test_what_a_scan_reads_from_outside_becomes_a_state(tmp_path: Path) -> None:
    bundle = opbridge.export(_Distances(), (torch.randn(5, 3),), path=tmp_path / "b", engines=["openvino"])
    assert bundle.verified, bundle.verification
    changed = [step["what"] for step in bundle.manifest["adaptations"]["openvino"]]
    assert "values that the body of a Scan reads become its states" in changed


def test_a_scan_that_reads_from_outside_in_a_branch() -> None:
    double = helper.make_graph(
        [helper.make_node("Add", ["outer", "outer"], ["twice"])], "then", [], [value_info("twice", (FLOAT, [2]))]
    )
    plain = helper.make_graph(
        [helper.make_node("Sub", ["outer", "row"], ["less"])], "otherwise", [], [value_info("less", (FLOAT, [2]))]
    )
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "row"], ["next"]),
            helper.make_node("ReduceSum", ["row"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "limit"], ["is_large"]),
            helper.make_node("If", ["is_large"], ["chosen"], then_branch=double, else_branch=plain),
        ],
        "body",
        [value_info("state", (FLOAT, [2])), value_info("row", (FLOAT, [2]))],
        [value_info("next", (FLOAT, [2])), value_info("chosen", (FLOAT, [2]))],
    )
    model = make_model(
        [
            helper.make_node("Neg", ["start"], ["outer"]),
            helper.make_node("Scan", ["start", "rows"], ["last", "each"], body=body, num_scan_inputs=1),
        ],
        {"start": (FLOAT, [2]), "rows": (FLOAT, ["n", 2]), "limit": (FLOAT, [])},
        {"last": (FLOAT, [2]), "each": (FLOAT, ["n", 2])},
    )
    expected = ReferenceEvaluator(model)
    changed = to_ir(model)
    result = ScanStatesPass()(changed)
    assert result.modified
    proto = ir.to_proto(changed)
    onnx.checker.check_model(proto, full_check=True)
    feeds = {"start": np.array([1, 2], np.float32), "rows": np.array([[1, 2], [-3, 1]], np.float32)}
    feeds["limit"] = np.array(0, np.float32)
    for found, wanted in zip(ReferenceEvaluator(proto).run(None, feeds), expected.run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not ScanStatesPass()(changed).modified


@pytest.mark.sweep
def test_a_division_in_float64_has_another_way(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x // y, x // 4

    inputs = torch.tensor([7.5, -7.5, 0.0, 1e9]), torch.tensor([2.0, 2.0, -3.0, 0.25])
    bundle = opbridge.export(Net(), inputs, path=tmp_path / "bundle", engines=["openvino"])
    assert bundle.verified, bundle.verification
    session = opbridge.load(bundle.path, "openvino")
    for found, expected in zip(session(*(x.numpy() for x in inputs)), Net()(*inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
