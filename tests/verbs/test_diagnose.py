"""Diagnoses: every broken link at once, nothing raised, and the same rungs as the export takes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_failure_models import no_fake, positive_part
from places import ENTRIES
from roundtrip import PickyEngine, catalog
from torch import Tensor, nn
from unmapped import abandoned, forgotten, lost

import opbridge
from opbridge.capture.capture import capture
from opbridge.capture.entry import Entry, load_entry
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines import get
from opbridge.engines.versions import Versions
from opbridge.ladder.climb import climb
from opbridge.ladder.plan import calls_in, plan
from opbridge.torch_graph.distinct import distinct_operators
from opbridge.torch_graph.targets import functional_target, target_key
from opbridge.verbs.diagnose import diagnose_entry
from opbridge.verbs.diagnosis import Diagnosis

pytestmark = pytest.mark.newest

EXAMPLE_FILES = list(ENTRIES.values())


class Broken(nn.Module):
    """Three operators that nothing maps, one that the catalog mends, and many that are fine."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = lost(self.layer(x))
        y = y + forgotten(y) + lost(y)
        y = abandoned(y)
        return torch.hypot(y, x).relu()


BROKEN = {"opbridge_tests::lost", "opbridge_tests::forgotten", "opbridge_tests::abandoned"}


@pytest.fixture(scope="module")
def broken() -> Diagnosis:
    return opbridge.diagnose(Broken().train(), (torch.randn(3, 4),))


def test_every_broken_link_is_listed(broken: Diagnosis) -> None:
    assert not broken.ok
    errors = {finding.target: finding for finding in broken.findings if finding.severity == "error"}
    assert set(errors) == BROKEN
    start = Broken.forward.__code__.co_firstlineno
    first = errors["opbridge_tests::lost"]
    assert first.code == "unmapped-operator"
    assert not first.mended
    assert [place.rpartition(":")[2] for place in first.sources] == [str(start + 1), str(start + 2)]
    assert all("test_diagnose.py" in place for place in first.sources)
    assert "opbridge.decomposition" in first.fix
    assert "2" in first.message, "how often it occurs"


def test_what_is_mended_is_listed_too(broken: Diagnosis) -> None:
    (hypot,) = [finding for finding in broken.findings if finding.target == "aten::hypot"]
    assert hypot.severity == "info"
    assert hypot.rung == "decompose"
    assert [finding.code for finding in broken.findings].count("training-mode") == 1


def test_the_links_of_every_operator(broken: Diagnosis) -> None:
    links = {item.target: item for item in broken.operators}
    assert set(links) == {*BROKEN, "aten::linear", "aten::add.Tensor", "aten::hypot", "aten::relu"}
    assert {name for name, item in links.items() if not item.mapping} == BROKEN
    assert {name for name, item in links.items() if item.kernel is None} == BROKEN
    assert all(item.torch for item in broken.operators)
    assert links["aten::add.Tensor"].count == 2
    assert links["opbridge_tests::lost"].count == 2


def test_a_diagnosis_is_json(broken: Diagnosis) -> None:
    data = json.loads(json.dumps(broken.to_dict()))
    assert data["ok"] is False
    assert {item["target"] for item in data["operators"]} >= BROKEN
    assert data["opset"] == 18
    assert set(data["engines"]) == {"onnxruntime"}
    for item in data["operators"]:
        assert set(item["links"]) == {"torch", "mapping", "kernel"}


def test_a_fine_model() -> None:
    diagnosis = opbridge.diagnose(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), (torch.randn(2, 3),))
    assert diagnosis.ok
    assert diagnosis.findings == ()
    assert [(item.target, item.kernel) for item in diagnosis.operators] == [
        ("aten::linear", True),
        ("aten::relu", True),
    ]


def test_a_failed_capture_is_a_finding() -> None:
    def model(x: Tensor) -> Tensor:
        return x + x.data_ptr()

    diagnosis = opbridge.diagnose(model, (torch.randn(3),))
    assert not diagnosis.ok
    (finding,) = diagnosis.findings
    assert f"test_diagnose.py:{model.__code__.co_firstlineno + 1}" in finding.message
    assert finding.severity == "error"
    assert diagnosis.operators == ()
    assert diagnosis.opset is None
    assert len(diagnosis.details.splitlines()) > 10, "the long story is for the log"
    assert json.dumps(diagnosis.to_dict())


@pytest.mark.slow
def test_all_that_stops_a_capture_is_found_in_one_run() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] % 2:
                x = x * 2
            first = range(3)[x[0].argmax()]
            last = range(3)[x[1].argmin()]
            return lost(torch.hypot(x[:, first:], x[:, first:])) * last

    x = torch.tensor([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]])
    diagnosis = opbridge.diagnose(Model().eval(), (x,), dynamic_shapes={"x": {0: "n"}})
    start = Model.forward.__code__.co_firstlineno
    found = [(item.code, item.sources[0].rpartition(":")[2]) for item in diagnosis.findings if item.severity == "error"]
    assert found == [
        ("restricted-dimension", str(start + 1)),
        ("data-dependent-value", str(start + 3)),
        ("data-dependent-value", str(start + 4)),
        ("unmapped-operator", str(start + 5)),
    ]
    assert not diagnosis.ok
    assert {item.target for item in diagnosis.operators if item.rung == "decompose"} == {"aten::hypot"}


@pytest.mark.slow
def test_four_kinds_of_problems_are_found_in_one_run() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = None
            for bound in (0, 1):
                if x.sum() < bound:
                    mask = x > 0 if mask is None else mask | (x > 0)
            x = torch.cond(x.mean() > 0, positive_part, torch.neg, (x,))
            x = no_fake(x)
            return lost(torch.hypot(x, x)) if mask is None else x * mask

    diagnosis = opbridge.diagnose(Model().eval(), (torch.ones(2, 3),))
    start = Model.forward.__code__.co_firstlineno
    found = [(item.code, item.sources[0].rpartition(":")[2]) for item in diagnosis.findings if item.severity == "error"]
    assert found == [
        ("control-flow", str(positive_part.__code__.co_firstlineno + 1)),
        ("unconverted-control-flow", str(start + 3)),
        ("missing-fake", str(start + 6)),
        ("unmapped-operator", str(start + 7)),
    ]
    (without_fake,) = [item for item in diagnosis.findings if item.code == "missing-fake"]
    assert "opbridge.fake_for('findings_test::no_fake')" in without_fake.fix
    assert not diagnosis.ok
    assert {item.target for item in diagnosis.operators if item.rung == "decompose"} == {
        "aten::hypot",
        "findings_test::no_fake",
    }


def dry(model: Any, args: Any, engine: Any) -> Diagnosis:
    return diagnose_entry(Entry("", model, args), [engine], catalog(), Versions())


def test_a_missing_kernel_is_a_finding() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.matmul(x, x).exp()

    diagnosis = dry(Model(), (torch.randn(3, 3),), PickyEngine("Exp"))
    assert not diagnosis.ok
    (finding,) = [item for item in diagnosis.findings if item.severity == "error"]
    assert (finding.code, finding.target) == ("no-kernel", "aten::exp")
    assert "Exp" in finding.message
    assert f"test_diagnose.py:{Model.forward.__code__.co_firstlineno + 1}" in finding.sources[0]
    links = {item.target: item for item in diagnosis.operators}
    assert links["aten::exp"].kernel is False
    assert links["aten::matmul"].kernel is True


def test_a_kernel_that_a_newer_opset_has_is_mended() -> None:
    diagnosis = dry(nn.ReLU(), (torch.randn(3),), PickyEngine("Relu", below=20))
    assert diagnosis.ok
    assert diagnosis.opset == 20
    (item,) = diagnosis.operators
    assert item.rung == "opset"
    assert {finding.severity for finding in diagnosis.findings} <= {"info", "warning"}


def test_a_mapping_that_raises_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import opbridge\n\n@opbridge.decomposition('opbridge_tests::lost')\n"
        "def lost(x):\n    raise ValueError('not finished')\n"
    )
    diagnosis = opbridge.diagnose(Broken(), (torch.randn(3, 4),), ops=[file])
    assert not diagnosis.ok
    found = [f for f in diagnosis.findings if "not finished" in f.message]
    assert found
    assert found[0].severity == "error"


class Mixed(nn.Module):
    """Branches, loops, in-place operators, lists, several outputs, and sizes as arguments."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[0] = 1
        y.add_(x).relu_()
        top, bottom = y.split([1, x.shape[0] - 1])
        y = torch.cat([bottom, top, y.sort(dim=0)[0]]).view(-1, x.shape[1])
        y = torch.cond(y.sum() > 0, lambda y: torch.hypot(y, y), lambda y: y.sin() + 1, (y,))
        index = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, torch.fmax(y, y * 2)), (index, y))[1]


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, {"x": {0: "rows"}}], ids=["static", "dynamic"])
def test_distinct_operators_of_everything(dynamic: Any) -> None:
    captured = capture(Mixed(), (torch.randn(4, 3),), dynamic_shapes=dynamic)
    before = str(captured.program.graph)
    distinct = distinct_operators(captured.program)
    assert str(captured.program.graph) == before

    def names(program: Any) -> set[Any]:
        keys = {target_key(functional_target(n.target)) for n in calls_in(program)}
        return {key for key in keys if isinstance(key, str) and "sym_size" not in key and "assert" not in key}

    assert names(captured.program) - names(distinct) == set()
    whole = plan(captured.program, catalog()).steps
    dry_steps = plan(distinct, catalog(), whole=captured.program).steps
    assert {(s.target, s.rung, s.count) for s in whole} == {(s.target, s.rung, s.count) for s in dry_steps}


def test_equal_operators_are_asked_about_once() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(10)))
    captured = capture(model, (torch.randn(2, 4),))
    counts = Counter(target_key(node.target) for node in calls_in(distinct_operators(captured.program)))
    assert counts == {"aten::linear.default": 1, "aten::relu.default": 1}
    steps = opbridge.diagnose(model, (torch.randn(2, 4),)).operators
    assert {item.target: item.count for item in steps} == {"aten::linear": 10, "aten::relu": 10}


@pytest.mark.quick("super_resolution", every=0)
@pytest.mark.parametrize("file", EXAMPLE_FILES, ids=lambda file: file.stem)
def test_a_diagnosis_takes_the_rungs_of_the_export(file: Path) -> None:
    if "torchvision" in file.read_text():
        pytest.importorskip("torchvision", reason="this example uses it")
    entry = load_entry(f"{file}:model")
    known = Catalog.load()
    captured = capture(
        entry.model, entry.args, entry.kwargs, dynamic_shapes=entry.dynamic_shapes, rewrites=known.rewrites()
    )
    exported = climb(captured, known, [get("onnxruntime")])
    diagnosed = climb(captured, known, [get("onnxruntime")], dry=True)
    assert exported.opset == diagnosed.opset
    pairs = list(zip(exported.steps, diagnosed.steps, strict=True))
    for one, other in pairs:
        # What a decomposition makes is counted once for each distinct operator that it decomposes.
        assert one.count >= other.count
        assert one.to_dict() | {"count": 0} == other.to_dict() | {"count": 0}
    called = {str(target_key(node.target)) for node in captured.program.graph.nodes if node.op == "call_function"}
    assert all(one.count == other.count for one, other in pairs if one.target in called)
    assert [s.sources for s in exported.steps] == [s.sources for s in diagnosed.steps]
    assert {b.target for b in exported.breaks} == {b.target for b in diagnosed.breaks}


def test_nothing_of_the_model_is_changed_by_a_diagnosis() -> None:
    model = Broken()
    before = {name: (id(p), p.requires_grad) for name, p in model.named_parameters()}
    opbridge.diagnose(model, (torch.randn(3, 4),))
    assert {name: (id(p), p.requires_grad) for name, p in model.named_parameters()} == before
    assert model.training
    assert not hasattr(sys, "last_exc") or sys.last_exc is None
