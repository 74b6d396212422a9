"""What is special to OpenVINO: a frontend that crashes when it is asked, and a plugin that takes no unknown ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from one_node import FLOAT, one_node, to_ir

import opbridge
from opbridge import engines
from opbridge.engines.openvino.questions import OpenVinoQuestions
from opbridge.engines.question import bare_model

pytest.importorskip("openvino")

ENGINE = engines.get("openvino")


def test_a_crash_of_the_frontend_is_an_answer() -> None:
    questions = OpenVinoQuestions("OpenVINO")
    said = questions.about(bare_model("", "Max", {"": 19}, 10))
    assert said.crashed.startswith("OpenVINO crashed (SIGSEGV) while converting a model of one node")
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


def test_a_loop_whose_body_states_no_ranks_runs(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cummax(torch.special.i0e(x), 1).values

    bundle = opbridge.export(Net(), (torch.randn(2, 5),), path=tmp_path / "bundle", engines=["openvino"])
    assert bundle.verified, bundle.verification
