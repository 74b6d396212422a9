"""The times of nodes: what engines tell, put to the torch operators that the nodes were made for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import opbridge
from opbridge.engines.onnxruntime.profile import node_times
from opbridge.engines.profiling import NodeTime
from opbridge.proof.verify.timing import CapturedCall, with_targets
from opbridge.proof.verify.torch_times import timed_calls

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.newest


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.first(x), -1) * torch.special.i0e(self.second(x))


class Viewed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).relu_() + 1


def event(name: str, start: int, duration: int, operator: str = "Mul") -> dict[str, Any]:
    timed = {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": {"op_name": operator}}
    return timed if operator else {**timed, "cat": "Session", "name": name}


def test_a_profile_is_read_run_by_run() -> None:
    events = [
        *(event("model_run", start, 90, "") for start in (0, 100, 200, 300)),
        *(event("a", 10, 70), event("a", 110, 5), event("a", 210, 9), event("a", 310, 7)),
        # A loop's nodes are part of it, and a node may run twice in a run.
        *(event("loop", 120, 40, "Loop"), event("inside", 130, 10), event("inside", 145, 10)),
        *(event("b", 170, 3), event("b", 180, 4), event("b", 270, 6), event("b", 370, 8)),
        *(event("before", -50, 10), {"cat": "Session", "name": "model_loading_uri", "ts": 0, "dur": 1}),
    ]
    assert node_times(events) == (
        NodeTime("a", "Mul", pytest.approx(7e-6)),
        NodeTime("loop", "Loop", pytest.approx(40e-6)),
        NodeTime("b", "Mul", pytest.approx(7e-6)),
    )


def test_the_names_that_engines_give_lead_to_the_operator() -> None:
    sources = {"captured": {"node_linear": "linear", "node_split": "unbind"}, "values": {"relu": ["relu_1", None]}}
    calls = [
        CapturedCall("linear", "aten::linear", 3e-6),
        CapturedCall("unbind", "aten::unbind.int", 1e-6, computes=False),
        CapturedCall("relu_1", "aten::relu", 2e-6),
    ]
    names = ["node_linear", "node_linear/MatMulAddFusion", "relu_nchwc", "node_split__0", "ReorderOutput", "a/b/c"]
    found = with_targets([NodeTime(name, "Op", 1e-6) for name in names], sources, calls)
    assert [item.target for item in found] == [
        *("aten::linear", "aten::linear", "aten::relu", "aten::unbind.int", "", ""),
    ]
    assert [item.torch_seconds for item in found] == [3e-6, 3e-6, 2e-6, 1e-6, None, None]


def test_calls_that_were_fused_are_counted_to_the_node_that_is_left() -> None:
    def block(number: int) -> list[CapturedCall]:
        return [
            CapturedCall(f"conv_{number}", "aten::conv2d", 5e-6, (f"norm_{number}",)),
            CapturedCall(f"norm_{number}", "aten::batch_norm", 2e-6, (f"relu_{number}",)),
            CapturedCall(f"relu_{number}", "aten::relu", 1e-6, (f"flat_{number}",)),
            CapturedCall(f"flat_{number}", "aten::flatten", 5e-7, ("fc",), computes=False),
        ]

    calls = [*block(1), *block(2), CapturedCall("fc", "aten::linear", 4e-6), CapturedCall("unused", "aten::exp", 1.0)]
    sources = {"values": {name: [name, None] for name in ("relu_1", "relu_2", "fc")}}
    times = [NodeTime("relu_1_nchwc", "Conv", 3e-6), NodeTime("relu_2", "Conv", 4e-6), NodeTime("fc", "Gemm", 1e-6)]
    found = with_targets(times, sources, calls)
    fused = "aten::conv2d + aten::batch_norm + aten::relu"
    assert [item.target for item in found] == [fused, fused, "aten::linear"]
    # Of both blocks, which are one line of the report; and of the views before the last node with that node.
    assert [item.torch_seconds for item in found] == pytest.approx([16e-6, 16e-6, 5e-6])


def test_pytorchs_time_is_that_of_each_call() -> None:
    program = torch.export.export(Gated(), (torch.randn(512, 64),))
    calls = timed_calls(program, [torch.randn(512, 64)], runs=3)
    assert [call.target for call in calls] == [
        *("aten::linear", "aten::softmax.int", "aten::linear", "aten::special_i0e", "aten::mul.Tensor"),
    ]
    assert all(0 < call.seconds < 1 for call in calls)
    assert calls[0].users == (calls[1].name,)
    viewed = torch.export.export(Viewed(), (torch.randn(4, 6),))
    assert [(call.target, call.computes) for call in timed_calls(viewed, [torch.randn(4, 6)], runs=1)] == [
        *(("aten::transpose.int", False), ("aten::relu_", True), ("aten::add.Tensor", True)),
    ]


@pytest.mark.slow
def test_verify_times_the_nodes_when_it_is_asked_to(tmp_path: Path) -> None:
    module, x = Gated(), torch.randn(32, 64)
    opbridge.export(module, (x,), path=tmp_path / "b", with_reference=True, verify=False)
    assert opbridge.verify(tmp_path / "b").timings == ()
    verified = opbridge.verify(tmp_path / "b", timings=True)
    assert verified.passed
    by_target: dict[str, list[Any]] = {}
    for item in verified.timings:
        by_target.setdefault(item.target, []).append(item)
    assert len(by_target["aten::linear"]) >= 2
    # What a decomposition of the catalog became is counted to the operator that it was made for.
    assert len(by_target["aten::special_i0e"]) > 10
    assert all(item.torch_seconds > 0 for target, items in by_target.items() if target for item in items)
    assert json.loads((tmp_path / "b/verification.json").read_text())["timings"][0]["seconds"] > 0
    assert "aten::special_i0e" in (tmp_path / "b/report.html").read_text()


@pytest.mark.slow
def test_an_engine_that_does_not_tell_is_noted(tmp_path: Path) -> None:
    opbridge.export(Gated(), (torch.randn(4, 64),), path=tmp_path / "b", engines=["reference"], with_reference=True)
    verified = opbridge.verify(tmp_path / "b", timings=True)
    assert verified.passed
    assert verified.timings == ()
    (note,) = [note for note in verified.cases[0].notes if "times" in note]
    assert note == "the times of its nodes are not available: reference does not measure the time of each node."


@pytest.mark.slow
def test_the_nodes_of_an_onnx_model_are_timed_without_pytorch(tmp_path: Path) -> None:
    opbridge.export(Gated(), (torch.randn(4, 64),), path=tmp_path / "made", verify=False)
    opbridge.export(str(tmp_path / "made/model.onnx"), path=tmp_path / "b", with_reference=True, verify=False)
    inputs = [{"x": np.zeros((4, 64), np.float32)}]
    verified = opbridge.verify(tmp_path / "b", timings=True, inputs=inputs)
    assert verified.timings
    assert {item.target for item in verified.timings} == {""}
    assert {item.torch_seconds for item in verified.timings} == {None}
